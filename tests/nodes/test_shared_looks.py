"""Readers of one node that ask a home the same at the same time ask it once, and see nothing from before they began."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.nodes.one_process import OneProcess, in_threads, one_process
from transferqueue.errors import StaleMetadataError
from transferqueue.nodes.connection import FAILED, AttemptError
from transferqueue.nodes.envelopes import answer_of_error, answer_of_value
from transferqueue.nodes.link import LOCATE
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.range_locks import close_locks, open_locks, try_lock
from transferqueue.nodes.shared_looks import SharedLooks

pytestmark = pytest.mark.timeout(60)
ARGS: dict[str, Any] = {"partition": "p", "timeout": None}


@pytest.fixture(scope="module")
def cluster() -> Iterator[OneProcess]:
    with one_process(2) as cluster:
        yield cluster


@pytest.fixture
def looks(cluster: OneProcess, tmp_path: Path) -> SharedLooks:
    return SharedLooks(cluster.at[1].store, str(tmp_path / "looks"))


class Home:
    """Answers with the number of the question, after a while. `asked` are the times at which it was asked."""

    def __init__(self, answer: Callable[[int], bytes] = lambda number: b"%d" % number, seconds: float = 0.1) -> None:
        self.asked: list[int] = []
        self._answer = answer
        self._seconds = seconds
        self._guard = threading.Lock()

    def look(self, describe: bool) -> bytes:
        with self._guard:
            self.asked.append(time.monotonic_ns())
            number = len(self.asked) - 1
        time.sleep(self._seconds)
        return self._answer(number)


def read(looks: SharedLooks, home: Home, args: Mapping[str, Any] = ARGS, seconds: float = 0.0) -> tuple[int, bytes]:
    """(when it began, what it was told); `seconds`: how long its rows take."""
    began_ns = time.monotonic_ns()
    with looks.turn() as turn:
        answer = turn.ask(0, args, time.monotonic() + 20, home.look)
        if seconds:
            turn.let_next()
            time.sleep(seconds)
    return began_ns, answer


def test_who_comes_while_a_question_is_under_way_shares_the_next(looks: SharedLooks) -> None:
    home = Home()
    found = in_threads([partial(read, looks, home)] * 8)
    for began_ns, answer in found:
        assert home.asked[int(answer)] > began_ns
    assert len(home.asked) <= 4
    assert len({answer for _, answer in found}) < 5
    before = len(home.asked)
    assert read(looks, home)[1] == b"%d" % before, "what is known is not used"


@pytest.mark.parametrize("nbytes", [0, 4000, 4096, 5000, 60_000])
def test_answers_of_any_length_are_shared(looks: SharedLooks, nbytes: int) -> None:
    home = Home(lambda number: b"%d" % number + bytes(range(1, 251)) * (nbytes // 250))
    found = in_threads([partial(read, looks, home)] * 6)
    for began_ns, answer in found:
        number, rest = int(answer[:1]), answer[1:]
        assert home.asked[number] > began_ns
        assert rest == bytes(range(1, 251)) * (nbytes // 250)
    assert len(home.asked) <= 4


def test_other_questions_are_asked_at_once(looks: SharedLooks) -> None:
    home, other = Home(seconds=0.5), Home(seconds=0.0)
    thread = threading.Thread(target=read, args=(looks, home))
    thread.start()
    while not home.asked:
        time.sleep(0.001)
    for number in range(20):
        assert read(looks, other, {**ARGS, "partition": f"q{number}"})[1] == b"%d" % number
    assert thread.is_alive()
    thread.join()


def test_the_next_one_asks_when_the_rows_are_on_their_way(looks: SharedLooks) -> None:
    first, second = Home(seconds=0.0), Home(seconds=0.0)
    with looks.turn() as turn:
        assert turn.ask(0, ARGS, time.monotonic() + 20, first.look) == b"0"
        thread = threading.Thread(target=read, args=(looks, second))
        thread.start()
        time.sleep(0.1)
        assert not second.asked
        let_ns = time.monotonic_ns()
        turn.let_next()
        thread.join(0.4)
        assert second.asked[0] > let_ns
        assert not thread.is_alive(), "it has an answer, and its rows are its own affair"
    thread.join()


def test_a_process_has_threads_left_for_those_that_the_others_wait_for(looks: SharedLooks) -> None:
    home = Home(seconds=0.0)
    with looks.turn() as turn:
        turn.ask(0, ARGS, time.monotonic() + 20, home.look)
        threads = [threading.Thread(target=read, args=(looks, home)) for _ in range(20)]
        for thread in threads:
            thread.start()
        while len(home.asked) < 5:  # the first, and four that did not wait
            time.sleep(0.001)
        turn.let_next()
        for thread in threads:
            thread.join()
    assert not looks.waiting


@pytest.mark.parametrize("answer", [lambda number: bytes(1 << 20), lambda number: pytest.fail("no answer")])
def test_what_cannot_be_shared_everybody_asks_for(looks: SharedLooks, answer: Callable[[int], bytes]) -> None:
    home = Home(answer)

    def one() -> int:
        try:
            return len(read(looks, home)[1])
        except BaseException:
            return -1

    found = in_threads([one] * 4)
    assert found in ([1 << 20] * 4, [-1] * 4)
    assert len(home.asked) >= 3


def test_nobody_waits_for_long_for_a_process_that_stands_still(looks: SharedLooks) -> None:
    home = Home(seconds=0.0)
    held: list[tuple[int, int]] = []

    def stop(describe: bool) -> bytes:
        held.append((turn._fd, turn._first))
        return b""

    turn = looks.turn()
    turn.ask(0, ARGS, time.monotonic() + 20, stop)
    try:
        began_s = time.monotonic()
        found = in_threads([partial(read, looks, home)] * 3)
        assert time.monotonic() - began_s >= 0.4
        assert len(found) == 3
        assert 1 <= len(home.asked) <= 3
        limit_s = time.monotonic() + 0.1
        with looks.turn() as other:
            assert other.ask(0, ARGS, limit_s, home.look)
    finally:
        turn.over()
    fd = open_locks(looks.path)
    assert try_lock(fd, held[0][1], 2), "nothing of it is left"
    close_locks(fd)


def _by_look(cluster: OneProcess, seconds: float, asked: list[int]) -> Callable[..., bytes]:
    def look(place: NodePlace, method: str, args: Mapping[str, Any], until_s: float) -> bytes:
        asked.append(time.monotonic_ns())
        try:
            value = cluster._call_now(place.ordinal, method, args, until_s, bytes(16))
        except StaleMetadataError as error:
            return answer_of_error(error)
        time.sleep(seconds)
        return answer_of_value(value)

    return look


def test_readers_share_locate_and_see_every_put_that_was_over_when_they_began(cluster: OneProcess) -> None:
    home, asked = cluster.at[0].client, list[int]()
    home.place_partition("p")
    client = cluster.at[1].client
    client.link.look = _by_look(cluster, 0.005, asked)
    meta = home.put(TensorDict({"x": torch.zeros(4, dtype=torch.int64)}, [4]), partition_id="p")
    latest, reads, ends = 0, 0, time.monotonic() + 1.5

    def writer() -> None:
        nonlocal latest
        while time.monotonic() < ends:
            home.put(TensorDict({"x": torch.full((4,), latest + 1)}, [4]), metadata=meta)
            latest += 1
            time.sleep(0.04)

    def reader() -> None:
        nonlocal reads
        while time.monotonic() < ends:
            least = latest
            values = client.get_data(meta)["x"].tolist()
            assert len(set(values)) == 1
            assert least <= values[0] <= latest + 1
            reads += 1

    in_threads([writer, *[reader] * 6])
    assert latest > 3
    assert len(asked) < reads
    home.clear_samples(meta)
    for error in in_threads([partial(_error_of, client, meta)] * 4):
        assert isinstance(error, StaleMetadataError), "errors are answers, too"
    client.link.look = None


def _error_of(client: Any, meta: Any) -> BaseException | None:
    try:
        client.get_data(meta)
    except StaleMetadataError as error:
        return error
    return None


def test_a_look_without_an_answer_is_a_call_as_ever(cluster: OneProcess) -> None:
    home, client = cluster.at[0].client, cluster.at[1].client
    home.place_partition("q")
    meta = home.put(TensorDict({"x": torch.arange(4)}, [4]), partition_id="q")

    def look(place: NodePlace, method: str, args: Mapping[str, Any], until_s: float) -> bytes:
        raise AttemptError(FAILED, "no")

    client.link.look = look
    calls = len(cluster.calls)
    found = in_threads([partial(client.get_data, meta)] * 4)
    assert [batch["x"].tolist() for batch in found] == [[0, 1, 2, 3]] * 4
    assert cluster.calls[calls:].count((0, LOCATE)) == 4
    client.link.look = None
