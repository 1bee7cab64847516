"""`tq bench`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from transferqueue.cli import main
from transferqueue.microbench import command
from transferqueue.microbench.timing import Measured

pytestmark = pytest.mark.timeout(120)


def test_it_measures_with_a_session_of_its_own_and_leaves_none(tmp_path: Path, capsys: Any) -> None:
    # That nothing is left is checked for every module of the tests.
    file = tmp_path / "out.json"
    arguments = ["bench", "--rows", "16", "--keys", "50", "--rounds", "1", "--no-peers", "--json", str(file)]
    assert main(arguments) == 0
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == command.HEADER
    assert lines[1][0].startswith("memcpy of ")
    shown = {line[0]: line for line in lines[2:]}
    assert shown.keys() == {
        "put_get_w",
        "small_8x16",
        "single_row_put",
        *(f"keys_50_{name}" for name in ("put", "get", "list", "metadata")),
    }
    assert shown["put_get_w"][4].endswith("x memcpy")
    assert shown["single_row_put"][6].endswith(" /s")
    record = json.loads(file.read_text())
    assert (record["rows"], record["keys"], record["rounds"], record["failed"]) == (16, 50, 1, [])
    assert record["machine"]["cpus"] >= 1
    [w] = [result for result in record["results"] if result["claim"] == "put_get_w"]
    assert w["checked_rows"] == 16
    assert len(w["put_s"]) == len(w["get_s"]) == len(w["memcpy_s"]) == 1


def test_a_directory_takes_the_payload(tmp_path: Path, capsys: Any) -> None:
    assert main(["bench", "--rows", "4", "--keys", "5", "--rounds", "1", "--no-peers", "--dir", str(tmp_path)]) == 0
    assert "put_get_w" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["--rows", "--keys", "--rounds"])
def test_sizes_below_one_are_refused(name: str, capsys: Any) -> None:
    assert main(["bench", name, "0"]) == 1
    assert f"tq bench: {name} must be at least 1" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(capsys: Any) -> None:
    assert main(["bench", "--json", "/no/such/folder/out.json"]) == 1
    captured = capsys.readouterr()
    assert "/no/such/folder" in captured.err
    assert "measured" not in captured.err


def _ours_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_noted", lambda what, measure: [])


def test_ray_is_measured_with_and_without_its_switch_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    asked: list[tuple[str, str]] = []

    def peer(arguments: list[str], *, env: dict[str, str], **_: Any) -> Any:
        asked.append((arguments[2], env[command._RAY_SWITCH]))
        result = Measured("put_get_w", f"Ray {env[command._RAY_SWITCH]}", put_s=[0.1], get_s=[0.1], memcpy_s=[0.1])
        return subprocess.CompletedProcess(arguments, 0, f"noise\nRESULT {json.dumps([result.as_json()])}\n", "")

    _ours_measures_nothing(monkeypatch)
    monkeypatch.setattr(subprocess, "run", peer)
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: object())
    assert main(["bench"]) == 0
    assert asked == [("transferqueue.microbench.ray_peer", "0"), ("transferqueue.microbench.ray_peer", "1")]
    assert "put_get_w\tRay 1\t100.000\t100.000\t2.00x memcpy" in capsys.readouterr().out

    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    assert main(["bench"]) == 0
    assert len(asked) == 2


def test_a_peer_that_fails_is_told_and_the_others_are_shown(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def peer(arguments: list[str], **_: Any) -> Any:
        return subprocess.CompletedProcess(arguments, 1, "", "out of luck\n")

    _ours_measures_nothing(monkeypatch)
    monkeypatch.setattr(subprocess, "run", peer)
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: object())
    assert main(["bench"]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("could not be measured: no result; its last words: out of luck") == 2
    assert command.HEADER[0] in captured.out


def test_rows_of_one_measurement_stand_together_ours_first() -> None:
    ours = Measured("put_get_w", "ours", 67_000_000, put_s=[0.004], get_s=[0.001], memcpy_s=[0.005])
    ours.add_touches([0.005])
    results = [ours, Measured("small_8x16", "ours", put_s=[0.0001]), Measured("put_get_w", "Ray", get_s=[0.002])]
    rows = command.table_rows([result.as_json() for result in results])
    assert [(row[0], row[1]) for row in rows] == [
        ("memcpy of 67 MB", ""),
        ("put_get_w", "ours"),
        ("put_get_w", "Ray"),
        ("small_8x16", "ours"),
    ]
    assert rows[1][2:6] == ["4.000", "1.000", "1.00x memcpy", "2.00x memcpy"]


def test_the_tools_for_peers_need_no_native_module() -> None:
    code = """
import sys
import transferqueue.microbench.timing, transferqueue.microbench.workload, transferqueue.microbench.consumer
assert "transferqueue._native" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
