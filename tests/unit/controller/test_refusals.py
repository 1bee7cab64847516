"""What cannot be a worker class, a method, or the answer of a mode is refused by name, before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from transferqueue.controller import ClassWithInitArgs, LocalWorkerGroup, WorkerGroupDeadError
from transferqueue.controller.rank_actors import RankActors
from transferqueue.workers import Dispatch, Worker, register


def returns_what_it_got(group: Any, spread: Any) -> Any:
    return spread


class Odd(Worker):
    @register(dispatch_mode={"dispatch_fn": returns_what_it_got, "collect_fn": lambda group, outputs: outputs})
    def odd(self, value: int) -> int:
        return value

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def plain(self, value: int) -> int:
        return value


def test_what_is_no_class_or_method() -> None:
    with pytest.raises(TypeError, match=r"ClassWithInitArgs takes a class, plain or after ray.remote; got 3"):
        ClassWithInitArgs(3)
    with pytest.raises(TypeError, match=r"@register\(...\) is for methods, got int"):
        register(dispatch_mode=Dispatch.ONE_TO_ALL)(3)  # type: ignore[type-var]


def test_errors_of_arguments_and_of_a_mode_name_the_method() -> None:
    with LocalWorkerGroup(Odd, world_size=2) as group:
        with pytest.raises(TypeError, match=r"\.plain\(\) missing a required argument"):
            group.plain()
        for spread in ([1], None, ([1], 2)):
            with pytest.raises(TypeError, match=r"LocalWorkerGroup.odd: the dispatch_fn .* must return"):
                group.odd(spread)
        assert group.odd(((4,), {})) == [4, 4]


def test_a_group_whose_cluster_was_left_starts_no_other_one() -> None:
    ray = pytest.importorskip("ray")
    with pytest.raises(WorkerGroupDeadError, match=r"score was not sent: this process has left the Ray cluster"):
        RankActors([], [], ("", "")).check_alive("score")
    assert not ray.is_initialized()
