"""The base class of ranks."""

from __future__ import annotations

import pytest

from transferqueue.workers import RankInfo, Worker


class Plain(Worker):
    def __init__(self) -> None:  # does not call super().__init__()
        self.ready = True


def test_a_rank_reads_its_place_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    info = RankInfo(3, 4, 1, 2, "10.0.0.1", "1234")
    for name, value in info.to_environment().items():
        monkeypatch.setenv(name, value)
    worker = Plain()
    assert (worker.rank, worker.world_size, worker.local_rank, worker.local_world_size) == (3, 4, 1, 2)
    assert worker.get_master_addr_port() == ("10.0.0.1", "1234")
    assert RankInfo.from_environment() == info


def test_outside_a_group_there_is_one_rank() -> None:
    assert RankInfo.from_environment({}) == RankInfo(0, 1, 0, 1, None, None)
    with pytest.raises(ValueError, match="RANK must be an integer, got 'x'"):
        RankInfo.from_environment({"RANK": "x"})


def test_meshes() -> None:
    worker = Plain()
    worker._register_dispatch_collect_info("actor", dp_rank=1, is_collect=False)
    worker._register_dispatch_collect_info("ref", dp_rank=0, is_collect=True)
    assert (worker.query_dispatch_info("actor"), worker.query_collect_info("actor")) == (1, False)
    assert (worker._query_dispatch_info("ref"), worker._query_collect_info("ref")) == (0, True)
    with pytest.raises(ValueError, match="registered already"):
        worker._register_dispatch_collect_info("ref", dp_rank=0, is_collect=True)
    with pytest.raises(ValueError, match="negative"):
        worker._register_dispatch_collect_info("third", dp_rank=-1, is_collect=True)
    with pytest.raises(KeyError, match="'third' is not registered on rank 0 of Plain; registered: 'actor', 'ref'"):
        worker.query_dispatch_info("third")
    assert Plain()._dispatch_collect == {}, "meshes belong to one object"


def test_rank_zero_speaks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Plain().print_rank0("hello")
    monkeypatch.setenv("RANK", "1")
    Plain().print_rank0("silence")
    assert capsys.readouterr().out == "hello\n"
