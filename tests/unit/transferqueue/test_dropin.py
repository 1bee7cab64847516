"""`tq dropin`: one path entry, in the environment of the command and nowhere else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from transferqueue import cli, dropin
from transferqueue.dropin import PATH_ENTRY, add_to_runtime_env, changes_of


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "transferqueue.dropin", *command], capture_output=True, text=True, timeout=60, **options
    )


def test_the_path_entry_comes_first_and_only_once() -> None:
    separator = os.pathsep
    assert changes_of({})["PYTHONPATH"] == PATH_ENTRY
    changed = changes_of({"PYTHONPATH": f"/a{separator}/b"})
    assert changed["PYTHONPATH"] == separator.join([PATH_ENTRY, "/a", "/b"])
    assert changes_of(changed) == changed
    assert Path(PATH_ENTRY, "transfer_queue", "__init__.py").is_file()
    assert {entry.name.split("-")[0] for entry in Path(PATH_ENTRY).iterdir()} == {"transfer_queue", "TransferQueue"}


def test_another_hook_of_ray_is_kept() -> None:
    changed = changes_of({"RAY_RUNTIME_ENV_HOOK": "theirs.hook"})
    assert changed["RAY_RUNTIME_ENV_HOOK"] == "transferqueue.dropin.add_to_runtime_env"
    assert changed["TQ_DROPIN_NEXT_RUNTIME_ENV_HOOK"] == "theirs.hook"
    assert "TQ_DROPIN_NEXT_RUNTIME_ENV_HOOK" not in changes_of({**changed})


def theirs(runtime_env: dict[str, Any] | None) -> dict[str, Any]:
    return {**(runtime_env or {}), "pip": ["theirs"]}


@pytest.fixture
def ray_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    return tmp_path / "ray"


def test_a_cluster_that_the_command_starts_inherits_the_environment(ray_folder: Path) -> None:
    given = {"env_vars": {"A": "1"}}
    assert add_to_runtime_env(given) is given
    assert add_to_runtime_env(None) is None


def test_a_cluster_that_runs_is_told(ray_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ray_folder / "ray_current_cluster").write_text("10.0.0.1:6379")
    own = f"{PATH_ENTRY}{os.pathsep}${{PYTHONPATH}}"
    assert add_to_runtime_env(None) == {"env_vars": {"PYTHONPATH": own}}
    given = {"env_vars": {"A": "1", "PYTHONPATH": "/theirs"}, "pip": ["x"]}
    told = add_to_runtime_env(given)
    assert told == {"env_vars": {"A": "1", "PYTHONPATH": f"{PATH_ENTRY}{os.pathsep}/theirs"}, "pip": ["x"]}
    assert given["env_vars"] == {"A": "1", "PYTHONPATH": "/theirs"}
    assert add_to_runtime_env(told) == told
    monkeypatch.setenv("TQ_DROPIN_NEXT_RUNTIME_ENV_HOOK", f"{__name__}.theirs")
    monkeypatch.setitem(sys.modules, __name__, sys.modules[theirs.__module__])
    assert add_to_runtime_env(None) == {"env_vars": {"PYTHONPATH": own}, "pip": ["theirs"]}


def test_a_cluster_that_the_environment_names_is_told(ray_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert add_to_runtime_env(None) is not None
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert add_to_runtime_env(None) is None


def test_without_a_command_it_says_what_to_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["dropin"]) == 0
    assert f"export PYTHONPATH={PATH_ENTRY}" in capsys.readouterr().out


def test_the_process_is_the_command() -> None:
    echo = run("--", "sh", "-c", "cat; echo $PYTHONPATH; exit 7", input="given\n")
    assert (echo.returncode, echo.stdout.splitlines()[0]) == (7, "given")
    assert echo.stdout.splitlines()[1].split(os.pathsep)[0] == PATH_ENTRY
    assert run("sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM


@pytest.mark.parametrize(("command", "status"), [("no-such-command", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_be_started(command: str, status: int) -> None:
    done = run("--", command)
    assert done.returncode == status
    assert done.stderr.startswith(f"tq dropin: {command}: ")


def test_a_folder_that_would_be_imported_instead_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "transfer_queue").mkdir()
    monkeypatch.chdir(tmp_path)
    assert dropin.main(["no-such-command"]) == 127
    assert "there is a folder transfer_queue" in capsys.readouterr().err
