"""Resource limits and namespaces: what the system refuses is a typed error that names the limit, nothing is left of it,
and nobody else's session suffers."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
import torch

import transferqueue as tq
from tests.hostile import limited
from tests.hostile.limited import MIB, SMALL, rows
from tests.support.nursery import Nursery
from tests.support.sessions import embedded, left_behind

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def client() -> Iterator[tq.TransferQueueClient]:
    with embedded(**SMALL) as session:
        yield session.client


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.mark.parametrize(
    ("limit", "cls", "number", "values", "enough"),
    [
        ("RLIMIT_NOFILE", "SystemRefusedError", errno.EMFILE, list(range(14)), 64),
        ("RLIMIT_FSIZE", "SystemRefusedError", errno.EFBIG, [0, 4096, MIB], 1 << 30),
        ("RLIMIT_AS", "MemoryRefusedError", errno.ENOMEM, [MIB, 12 * MIB, 48 * MIB], 1 << 30),
    ],
)
def test_a_session_made_and_joined_under_a_limit(
    client: tq.TransferQueueClient,
    nursery: Nursery,
    limit: str,
    cls: str,
    number: int,
    values: list[int],
    enough: int,
) -> None:
    """At each step that takes of it."""
    client.put(rows(2, 1.0), partition_id="p")
    child = nursery.start(limited.make_and_join, client.session, limit, [*values, enough])
    answers = list(iter(child.receive, None))
    assert child.wait() == 0
    for value, made, joined, *left in answers:
        assert made in (None, (cls, limit, number)), value
        assert joined in (None, (cls, limit, number)), value
        assert left == [[], []], value
    assert answers[0][1:3] == ((cls, limit, number),) * 2
    assert answers[-1][1:3] == (None, None)
    assert bool((client.get_data(client.get_meta(["x"], 0, "p", mode="force_fetch"))["x"] == 1.0).all())


@pytest.mark.parametrize("value", [0, 4096, 65_536, MIB])
def test_no_file_may_grow_beyond_a_size(client: tq.TransferQueueClient, nursery: Nursery, value: int) -> None:
    """What a put writes to the index may end anywhere below or beyond it. Whole rows or none, and none of it is a death
    by SIGXFSZ."""
    child = nursery.start(limited.write_under_a_file_size, client.session, value)
    put = []
    for number in range(30):
        told, refusal = child.receive()
        assert told == number
        assert refusal in (None, ("SystemRefusedError", "RLIMIT_FSIZE", errno.EFBIG))
        if refusal is None:
            put.append(f"q{number}")
    assert child.receive() == ("child", 3)  # its lease file is a new file
    assert child.receive() == ("after", None)
    assert child.wait() == 0
    if value == 0:
        assert not put
    if value == MIB:
        assert len(put) == 30
    written = [name for name in client.get_partition_list() if name.startswith("q")]
    assert sorted(written) == sorted(put)
    for name in put:
        got = client.get_data(client.get_meta(["x"], 0, name, mode="force_fetch"))["x"]
        assert torch.equal(got, torch.full_like(got, float(name[1:])))
    client._store.reap()
    client._store.check()


@pytest.mark.parametrize("spare", [0, 2 * MIB, 8 * MIB])
def test_little_address_space(client: tq.TransferQueueClient, nursery: Nursery, spare: int) -> None:
    """Reads end with the stored bytes or with a typed error; what is read is the reader's own."""
    meta = client.put(rows(12, 1.0), partition_id="p")
    child = nursery.start(limited.read_and_write_in_little_space, meta, client.session, spare)
    answers, put, right, leased = child.receive()
    for answer in (*answers, put):
        assert answer in (None, ("MemoryRefusedError", "RLIMIT_AS", errno.ENOMEM))
    assert right == [True] * answers.count(None)
    assert leased == bool(right)
    assert child.receive() is True
    assert child.wait() == 0


def test_no_memory_may_be_locked(client: tq.TransferQueueClient, nursery: Nursery) -> None:
    child = nursery.start(limited.work_without_locked_memory, client.session)
    assert child.receive() == [True] * 3
    assert child.wait() == 0


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("user", ["attached", True, True]),
        ("network", ["attached", True, True]),
        ("pid", ["LayoutMismatchError", True]),
        ("shared memory", ["SessionNotFoundError", True]),
        ("read-only", ["SystemRefusedError", "SystemRefusedError"]),
    ],
)
def test_a_visit_from_another_namespace(
    client: tq.TransferQueueClient, nursery: Nursery, kind: str, expected: list[object]
) -> None:
    """Right bytes or a typed error, and the session that is visited keeps every file."""
    meta = client.put(rows(2, 1.0), partition_id="p")
    there = sorted(left_behind(client.session))
    child = nursery.start(limited.visit_from, client.session, kind)
    if (found := child.receive()) is None:
        pytest.skip("may not make namespaces here")
    assert found == expected
    assert child.wait() == 0
    assert sorted(left_behind(client.session)) == there
    assert bool((client.get_data(meta)["x"] == 1.0).all())
    if expected[0] == "attached":
        assert client.get_data(client.get_meta(["y"], 0, "p", mode="force_fetch"))["y"].tolist() == [0, 1]
