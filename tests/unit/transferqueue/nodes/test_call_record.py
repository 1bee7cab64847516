"""One run a request id: who comes meanwhile waits for it, who comes later is given its answer, within bounds."""

from __future__ import annotations

import threading

import pytest

from transferqueue.nodes.call_record import CallRecord

pytestmark = pytest.mark.timeout(30)


class Work:
    def __init__(self, answer: bytes = b"done", *, keep: bool = True) -> None:
        self.runs = 0
        self.may_end = threading.Event()
        self.may_end.set()
        self._result = answer, keep

    def __call__(self) -> tuple[bytes, bool]:
        self.runs += 1
        self.may_end.wait(20)
        return self._result


def test_a_later_attempt_is_given_the_answer() -> None:
    record, work = CallRecord(), Work()
    assert [record.answer(b"1", work, 0.0) for _ in range(3)] == [b"done"] * 3
    assert work.runs == 1
    assert record.answer(b"2", work, 0.0) == b"done"
    assert work.runs == 2


def test_what_need_not_be_kept_is_done_again() -> None:
    record, work = CallRecord(), Work(keep=False)
    assert [record.answer(b"1", work, 0.0) for _ in range(2)] == [b"done"] * 2
    assert work.runs == 2


def test_an_attempt_meanwhile_waits_for_so_long_and_no_longer() -> None:
    record, work = CallRecord(), Work()
    work.may_end.clear()
    first = threading.Thread(target=record.answer, args=(b"1", work, 0.0))
    first.start()
    while not work.runs:
        threading.Event().wait(0.001)
    assert record.answer(b"1", work, 0.01) is None
    answers: list[bytes | None] = []
    second = threading.Thread(target=lambda: answers.append(record.answer(b"1", work, 20.0)))
    second.start()
    work.may_end.set()
    first.join()
    second.join()
    assert answers == [b"done"]
    assert work.runs == 1


def test_work_that_raises_is_done_again() -> None:
    record, work = CallRecord(), Work()

    def fail() -> tuple[bytes, bool]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record.answer(b"1", fail, 0.0)
    assert record.answer(b"1", work, 0.0) == b"done"


def test_what_is_kept_is_bounded() -> None:
    by_count, by_size, by_age = CallRecord(keep_count=2), CallRecord(keep_nbytes=9), CallRecord(keep_s=-1.0)
    for record, runs in ((by_count, 4), (by_size, 4), (by_age, 5)):
        work = Work(b"four")
        for name in (b"1", b"2", b"3"):
            record.answer(name, work, 0.0)
        record.answer(b"3", work, 0.0)
        record.answer(b"1", work, 0.0)
        assert work.runs == runs
        assert record._nbytes <= 9
