"""The reserved port of a group."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist

from transferqueue.workers import NoFreePortError
from transferqueue.workers.master_port import MasterPort, check_port_range, hand_over_port, reserve_master_port

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def reserved() -> Iterator[Callable[..., MasterPort]]:
    made: list[MasterPort] = []

    def reserve(*args: object) -> MasterPort:
        made.append(reserve_master_port(*args))  # type: ignore[arg-type]
        return made[-1]

    yield reserve
    for held in made:
        held.release()
        held.release()


def listen(port: int) -> socket.socket:
    return socket.create_server(("", port))  # with SO_REUSEADDR, as servers commonly do


def free_range(length: int) -> tuple[int, int]:
    """A range of ports that are all free now."""
    for first in range(21000, 60000, length):
        sockets = []
        try:
            for port in range(first, first + length):
                sockets.append(listen(port))
        except OSError:
            continue
        finally:
            for item in sockets:
                item.close()
        return first, first + length
    raise AssertionError("no free range of ports")


def test_nobody_else_can_listen_on_the_port(reserved: Callable[..., MasterPort]) -> None:
    held = reserved()
    with pytest.raises(OSError, match="in use"):
        listen(held.port)
    held.release()
    listen(held.port).close()


def test_the_rendezvous_of_this_process_has_the_port(
    reserved: Callable[..., MasterPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = reserved()
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": held.port, "RANK": 0, "WORLD_SIZE": 1}.items():
        monkeypatch.setenv(name, str(value))
    held.hand_over_once_initialized()
    dist.init_process_group("gloo")  # a program's own call, which knows nothing of the reservation
    try:
        with pytest.raises(OSError, match="in use"):
            listen(held.port)
    finally:
        deadline = time.monotonic() + 20.0
        while held.serves and time.monotonic() < deadline:
            time.sleep(0.02)
        dist.destroy_process_group()
    assert not held.serves, "a second group would meet the keys of the first"
    for _ in range(2):
        dist.init_process_group("gloo")
        dist.destroy_process_group()


def test_nobody_else_is_given_the_port(reserved: Callable[..., MasterPort]) -> None:
    ports = {reserved().port for _ in range(16)}
    for port in ports:
        hand_over_port(port)  # nothing listens there any more: only the reservation is left
    others = []
    try:
        for _ in range(500):
            other = socket.socket()
            other.bind(("", 0))
            others.append(other)
        ports.update(other.getsockname()[1] for other in others)
        assert len(ports) == 516
    finally:
        for other in others:
            other.close()


def test_a_range_is_used_up_one_by_one(reserved: Callable[..., MasterPort]) -> None:
    first, end = free_range(3)
    with listen(first + 1):
        assert [reserved((first, end)).port, reserved([first, end]).port] == [first, first + 2]
        with pytest.raises(NoFreePortError, match=f"every port from {first} to {end - 1} of .* is taken") as caught:
            reserved(range(first, end))
    assert (caught.value.first, caught.value.last) == (first, end - 1)


@pytest.mark.parametrize("wrong", [(1,), (5, 5), (0, 5), (1, 70000), ("1", "2"), (1, 2, 3)])
def test_what_is_no_range_is_refused(wrong: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a port range"):
        check_port_range(wrong)
