"""How a call on a group is sent: in frames where it can be, each rank's by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from transferqueue.controller import framed_method
from transferqueue.controller.framed_method import FramedMethod, takes_frames
from transferqueue.controller.rank_actor import actor_class
from transferqueue.controller.shared_arguments import SHARE_ABOVE_NBYTES
from transferqueue.metadata import BatchMeta
from transferqueue.workers import Broadcast, Dispatch, PerRank, Worker, register


class Mine(Worker):
    @register(dispatch_mode=Dispatch.ALL_TO_ALL)
    def method(self, meta: Any, *, times: int = 1) -> Any:
        return meta

    def same(self, meta: Any) -> Any:
        return meta

    def names(self) -> Any:
        yield "a"

    @staticmethod
    def helper(meta: Any) -> Any:
        return meta

    def told(self, meta: Any) -> Any:
        return meta

    told.__ray_concurrency_group__ = "io"  # type: ignore[attr-defined]  # what ray.method sets


class FakeActor:
    """An actor handle whose calls run at once; `sent` records them as (method, arguments)."""

    def __init__(self) -> None:
        self.worker = actor_class(Mine)()
        self.sent: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> FakeMethod:
        return FakeMethod(self, name)


class FakeMethod:
    def __init__(self, actor: FakeActor, name: str) -> None:
        self._actor = actor
        self._name = name
        self.task: str | None = None

    def options(self, *, name: str) -> FakeMethod:
        self.task = name
        return self

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        self._actor.sent.append((self._name, args))
        return getattr(self._actor.worker, self._name)(*args, **kwargs)


def rows(count: int = 8, **extra_info: Any) -> BatchMeta:
    return BatchMeta(np.arange(count), "train", extra_info=extra_info, session="s")


@pytest.fixture
def actors() -> list[FakeActor]:
    return [FakeActor() for _ in range(2)]


def test_pieces_go_in_frames_and_come_back(actors: list[FakeActor]) -> None:
    sent = FramedMethod(Mine, "same", actors).send([PerRank(rows().chunk(2))], {})
    assert sent is not None
    assert all(type(ref) is bytes for ref in sent.refs)
    assert sent.outputs(sent.refs) == rows().chunk(2)
    assert [actor.sent[0][0] for actor in actors] == ["_tq_framed_call"] * 2


def test_the_task_keeps_the_methods_name(actors: list[FakeActor]) -> None:
    assert [call.task for call in FramedMethod(Mine, "same", actors)._framed] == ["Mine.same"] * 2


def test_what_all_ranks_share_is_one_frame(actors: list[FakeActor]) -> None:
    sent = FramedMethod(Mine, "same", actors).send([Broadcast(rows())], {})
    assert sent is not None
    assert sent.outputs(sent.refs) == [rows()] * 2
    assert actors[0].sent[0][1][0] is actors[1].sent[0][1][0]


def test_a_large_one_is_put_once(actors: list[FakeActor], monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[bytes] = []

    class Ray:
        @staticmethod
        def put(value: bytes) -> bytes:
            stored.append(value)
            return value

    monkeypatch.setattr(framed_method, "require_ray", lambda what: Ray)
    scattered = BatchMeta(np.random.default_rng(0).permutation(1 << 17), "train")
    sent = FramedMethod(Mine, "same", actors).send([scattered], {})
    assert sent is not None
    assert len(stored) == 1
    assert len(stored[0]) > SHARE_ABOVE_NBYTES
    assert sent.outputs(sent.refs) == [scattered] * 2


def test_a_large_one_is_put_once_for_the_ranks_that_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    actors = [FakeActor() for _ in range(5)]
    stored: list[bytes] = []
    monkeypatch.setattr(framed_method, "_put", lambda frame: stored.append(frame) or frame)
    large = [BatchMeta(np.random.default_rng(seed).permutation(1 << 17), "train") for seed in range(3)]
    shards = PerRank([large[0], large[0], large[1], large[1], large[2]])
    sent = FramedMethod(Mine, "same", actors).send([shards], {})
    assert sent is not None
    assert len(stored) == 2, "what one rank alone gets goes with its call"
    assert sent.outputs(sent.refs) == list(shards)
    assert actors[0].sent[0][1][0] is actors[1].sent[0][1][0]
    assert actors[1].sent[0][1][0] is not actors[2].sent[0][1][0]


def test_a_rank_whose_piece_fits_no_frame_is_called_as_ray_does(actors: list[FakeActor]) -> None:
    odd = rows(2, tensor=torch.ones(2))
    sent = FramedMethod(Mine, "same", actors).send([PerRank([rows(), odd])], {})
    assert sent is not None
    assert [actor.sent[0][0] for actor in actors] == ["_tq_framed_call", "same"]
    assert sent.refs[1] is odd
    assert sent.outputs(sent.refs)[0] == rows()
    assert sent.outputs(sent.refs)[1] is odd


def test_bytes_from_a_rank_that_was_called_directly_are_what_it_returned(actors: list[FakeActor]) -> None:
    sent = FramedMethod(Mine, "same", actors).send([PerRank([rows(), b"\x01raw"])], {})
    assert sent is not None
    assert sent.outputs(sent.refs) == [rows(), b"\x01raw"]


@pytest.mark.parametrize("args", [[], [1], [Broadcast(rows(2, tensor=torch.ones(2)))], [Broadcast([rows()])]])
def test_calls_that_are_better_left_to_ray(actors: list[FakeActor], args: list[Any]) -> None:
    assert FramedMethod(Mine, "same", actors).send(args, {}) is None
    assert [actor.sent for actor in actors] == [[], []]


@pytest.mark.parametrize("args", [[rows(), rows()], [PerRank(rows().chunk(2)), 1]])
def test_arguments_that_the_method_does_not_take_are_refused_before_anything_is_sent(
    actors: list[FakeActor], args: list[Any]
) -> None:
    with pytest.raises(TypeError, match="too many positional arguments"):
        FramedMethod(Mine, "same", actors).send(args, {})
    with pytest.raises(TypeError, match="unexpected keyword"):
        FramedMethod(Mine, "method", actors).send(args[:1], {"tims": 2})
    assert [actor.sent for actor in actors] == [[], []]


def test_which_methods_take_frames() -> None:
    taken = {name for name in ("method", "same", "names", "helper", "told", "missing") if takes_frames(Mine, name)}
    assert taken == {"method", "same"}
