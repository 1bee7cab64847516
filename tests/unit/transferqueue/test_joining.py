"""Joining a session that another process makes: waiting for it, and being told what it does not take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest
import torch

import transferqueue as tq
from tests.support.sessions import SIZE, Forked, embedded, left_behind, served
from transferqueue.storage.names import new_session_name

pytestmark = pytest.mark.timeout(120)
SMALL = {"storage.size": SIZE}


@pytest.fixture(autouse=True)
def no_session_before_or_after() -> Iterator[None]:
    tq.close()
    yield
    tq.close()


def start_later(connection: Connection) -> None:
    name, wait_s = connection.recv()
    time.sleep(wait_s)
    with tq.init(session=name, **SMALL):
        tq.kv_put("k", "p", {"x": torch.tensor(3)})
        connection.recv()


def test_attach_waits_for_a_session_that_is_not_there_yet() -> None:
    name = new_session_name()
    child = Forked(start_later)
    child.say((name, 0.3))
    session = tq.attach(name, timeout=60)
    assert not session.creator
    assert tq.get_data(tq.wait("p", fields="x", keys="k", timeout=60))["x"].tolist() == [3]
    tq.close()
    assert left_behind(name), "a joiner only lets go"
    child.say()
    assert child.join() == 0
    assert left_behind(name) == []


@pytest.mark.parametrize(
    ("timeout", "text"), [(0, "^there is no session"), (0.1, r"^waited 0\.1 s: there is no session")]
)
def test_attach_says_how_long_it_waited_in_vain(timeout: float, text: str) -> None:
    with pytest.raises(tq.SessionNotFoundError, match=text):
        tq.attach("never-was", timeout=timeout)
    with pytest.raises(ValueError, match="timeout"):
        tq.attach("never-was", timeout=-1)


def test_attach_does_not_wait_to_be_in_another_session() -> None:
    with embedded() as session:
        with pytest.raises(tq.SessionNotFoundError, match=session.name):
            tq.attach("another", timeout=60)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    caplog.clear()
    return found


def test_values_that_a_session_does_not_take_are_named(caplog: pytest.LogCaptureFixture) -> None:
    with served() as name:
        session = tq.init(
            session=name, **{"storage.size": "1GiB", "controller.sampler": "GRPOGroupNSampler", "read.mode": "shared"}
        )
        (warning,) = warnings_of(caplog)
        assert "storage.size is 64.0 MiB (asked for: 1.0 GiB)" in warning
        assert "controller.sampler is SequentialSampler (asked for: GRPOGroupNSampler)" in warning
        assert "read.mode" not in warning, "a process's own choice"
        assert name in warning
        assert tq.init({"read": {"mode": "copy"}, "storage.size": SIZE}) is session
        assert ["read.mode is 'shared' (asked for: 'copy')" in warning for warning in warnings_of(caplog)] == [True]
        tq.init({"read.mode": "shared", "storage.size": SIZE, "controller.sampler": "SequentialSampler"})
        tq.init()
        assert warnings_of(caplog) == []
        tq.close()


def test_what_the_environment_says_for_all_is_no_reason_to_warn(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSFERQUEUE_STORAGE__SIZE", "32MiB")
    with embedded(**{"controller.sampler": tq.GRPOGroupNSampler(2)}):
        tq.init()
    assert warnings_of(caplog) == []
