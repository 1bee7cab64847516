"""`tq serve`, `ls`, `stats`, `inspect`, `clean`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.sessions import (
    SIZE,
    Forked,
    embedded,
    forked_service,
    left_behind,
    served,
    wait_for,
    wait_until_gone,
)
from transferqueue.cli import main
from transferqueue.storage.names import new_session_name

pytestmark = pytest.mark.timeout(120)


def output(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert main(list(arguments)) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


def rows_of(text: str) -> dict[str, list[str]]:
    """First column -> the others, of a tab-separated table."""
    return {line.split("\t")[0]: line.split("\t")[1:] for line in text.splitlines() if "\t" in line}


@pytest.mark.alone
def test_ls_tells_live_sessions_from_dead_ones_and_clean_removes_these(capsys: Any) -> None:
    def die(connection: Any) -> None:
        tq.init(session=connection.recv(), **{"storage.size": SIZE})
        connection.send("ready")
        connection.recv()

    dead = new_session_name()
    child = Forked(die)
    with served() as live:
        child.say(dead)
        child.hear()
        child.kill()
        listed = rows_of(output(capsys, "ls"))
        assert listed[live][0] == "in use"
        assert listed[dead][0] == "dead"
        assert listed[live][2] == "64.0 MiB in /dev/shm"
        assert f"removed session {dead} (" in output(capsys, "clean")
        listed = rows_of(output(capsys, "ls"))
        assert live in listed
        assert dead not in listed
    assert left_behind(dead) == []


def test_stats_shows_sizes_partitions_and_clients(capsys: Any) -> None:
    with embedded() as session:
        held = tq.get_data(tq.put(TensorDict({"x": torch.zeros(2, 1 << 20)}, [2]), partition_id="train"))
        shown = rows_of(output(capsys, "stats", "--session", session.name))
        assert shown["used_bytes"] == ["8.0 MiB", "committed blocks, exact"]
        assert shown["total_bytes"][0] == "64.0 MiB"
        assert [row for row in shown.values() if len(row) == 2 and not row[1]] == [], "every number is explained"
        assert "8.0 MiB" in shown["train"]
        assert shown[str(os.getpid())][:3] == ["alive", "1", "8.0 MiB"]
        assert held.batch_size == torch.Size([2])
        del held
        assert tq.get_data(tq.get_meta(["x"], 0, "train", mode="force_fetch")).batch_size == torch.Size([2])


def test_stats_shows_limits_and_what_is_held_of_them(capsys: Any) -> None:
    with embedded(**{"limits.partitions": {"train*": {"max_unconsumed_rows": 5, "when_exceeded": "shed"}}}) as session:
        tq.put(TensorDict({"x": torch.zeros(3)}, [3]), partition_id="train_0")
        shown = rows_of(output(capsys, "stats", "--session", session.name))
        assert "max_unconsumed_rows 3 of 5 (shed)" in shown["train_0"]
        assert shown["train*"] == ["max_unconsumed_rows=5, when_exceeded=shed"]
        assert session.name in output(capsys, "config", "--session", session.name)
        assert "train*" in output(capsys, "config", "--session", session.name)


def test_inspect_lists_rows_keys_fields_and_tags(capsys: Any) -> None:
    with embedded() as session:
        tq.kv_put("first", "train", {"x": torch.tensor(1)}, {"score": 0.5})
        tq.kv_put("second", "train", tag={"set": {1}})
        for number in range(30):
            tq.kv_put(f"k{number}", "train", {"x": torch.tensor(1)})
        shown = output(capsys, "inspect", "train", "--session", session.name, "--rows", "3")
        assert "32 rows, fields: x" in shown
        assert "\tfirst\tx\t{'score': 0.5}" in shown
        assert "\tsecond\t\t(pickled)" in shown
        assert "29 more rows" in shown
        error = output(capsys, "inspect", "nope", "--session", session.name, status=1)
        assert f"'nope' in session {session.name!r}" in error
        assert "train" in error


def test_help_explains_the_sizes_and_defaults(capsys: Any) -> None:
    for command, text in (("stats", r"\nspill_retired_bytes +on disk"), ("inspect", r"\(default: 20\)")):
        with pytest.raises(SystemExit) as end:
            main([command, "--help"])
        assert end.value.code == 0
        assert re.search(text, capsys.readouterr().out)
    assert "retired_bytes: of no row any more" in (tq.Stats.__doc__ or "")


def test_the_session_that_the_environment_names_is_looked_at(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with embedded() as session:
        for command in ("stats", "leases"):
            monkeypatch.setenv("TRANSFERQUEUE_SESSION", "never-was")
            assert "there is no session 'never-was'" in output(capsys, command, status=1)
            monkeypatch.setenv("TRANSFERQUEUE_SESSION", session.name)
            assert output(capsys, command).startswith(f"session {session.name}")


@pytest.mark.alone
def test_looking_at_a_dead_session_does_not_remove_it(capsys: Any) -> None:
    name = new_session_name()
    service = forked_service()
    service.say(name)
    service.hear()
    service.kill()
    assert "total_bytes" in output(capsys, "stats", "--session", name)
    assert left_behind(name)
    output(capsys, "clean")
    assert left_behind(name) == []


def test_errors_are_one_line_and_status_1(capsys: Any) -> None:
    assert output(capsys, "stats", "--session", "never-was", status=1).startswith("tq stats: there is no session")
    assert "no session name" in output(capsys, "stats", "--session", "a/b", status=1)
    assert "storage.size" in output(capsys, "serve", "--size", "ten", status=1)
    assert "/no/such is not a directory" in output(capsys, "clean", "--dir", "/no/such", status=1)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    assert "storage.siez" in output(capsys, "serve", "--set", "storage.siez=1", status=1)
    # The caller's handlers are its own again: Ctrl-C still reaches a program that called `main`.
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == before
    with pytest.raises(SystemExit) as wrong_usage:
        main(["fly"])
    assert wrong_usage.value.code == 2


def test_help_answers_without_torch() -> None:
    code = """
import sys
from transferqueue.cli import main
try:
    main(["--help"])
finally:
    assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_serve_leaves_nothing_after_a_signal(number: signal.Signals) -> None:
    name = new_session_name()
    service = forked_service("--populate", "16MiB", "--set", "controller.polling_mode=true")
    service.say(name)
    assert service.hear().startswith(f"serving session {name}")
    assert left_behind(name)
    os.kill(service.pid, number)
    assert service.join() == 0
    assert left_behind(name) == []


def test_only_one_service_per_session() -> None:
    with served() as name:
        second = subprocess.run(
            [sys.executable, "-m", "transferqueue.cli", "serve", "--session", name],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert second.returncode == 1
        assert "has a storage service already" in second.stderr
        assert left_behind(name)


def test_serve_reaps_clients_that_die() -> None:
    def die(connection: Any) -> None:
        tq.attach(connection.recv())
        views = tq.get_data(tq.kv_retrieve_meta("k", "p"))
        tq.get_client()._store.reserve(1 << 20, 0)
        tq.kv_clear("k", "p")
        connection.send(len(views.keys()))
        connection.recv()

    child = Forked(die)
    with served() as name:
        tq.init(session=name)
        tq.kv_put("k", "p", {"x": torch.zeros(1 << 20)})
        child.say(name)
        assert child.hear() == 1
        stats = tq.stats()
        assert stats.retired_bytes == 4 << 20
        assert len(stats.clients) == 3
        child.kill()
        wait_for(lambda: tq.stats().retired_bytes + tq.stats().pending_bytes == 0, what="reaping")
        assert len(tq.stats().clients) == 2
        tq.close()


def test_eight_services_at_once_with_stale_sessions_around() -> None:
    stale = [new_session_name() for _ in range(2)]
    for name in stale:
        dead = forked_service()
        dead.say(name)
        dead.hear()
        dead.kill()
    names = [new_session_name() for _ in range(8)]
    services = [forked_service() for _ in names]
    try:
        for service, name in zip(services, names, strict=True):
            service.say(name)
        for service, name in zip(services, names, strict=True):
            assert service.hear().startswith(f"serving session {name}")
        for service in services:
            os.kill(service.pid, signal.SIGTERM)
        assert [service.join() for service in services] == [0] * 8
    finally:
        for service in services:
            service.kill()
    for name in names:
        assert left_behind(name) == []
    for name in stale:
        wait_until_gone(name)
