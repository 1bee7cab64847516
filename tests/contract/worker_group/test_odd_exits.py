"""Methods that leave otherwise than by a value or an error that Ray carries: each call ends, and says what happened."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from transferqueue.controller import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup, WorkerDiedError, WorkerError
from transferqueue.workers import Dispatch, Worker, register

pytestmark = pytest.mark.timeout(120)


class Plain(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def interrupted(self) -> None:
        raise KeyboardInterrupt("of the method")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def yields(self) -> Iterator[int]:
        yield from (7, 8, 9)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def number(self) -> int:
        return self.rank

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def uses_its_own(self) -> list[int]:
        return [*self.yields(), *self.helper()]

    def helper(self) -> Iterator[int]:
        yield 10


class Looped(Plain):
    def __init__(self, exit_code: int | None = None) -> None:
        super().__init__()
        if exit_code is not None:
            sys.exit(exit_code)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def interrupted_in_loop(self) -> None:
        raise KeyboardInterrupt("of the coroutine")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def exits(self, rank: int) -> None:
        if self.rank == rank:
            sys.exit(5)


@pytest.mark.parametrize("worker_class", [Plain, Looped])
def test_every_way_out_of_a_method_is_an_error_that_names_it(ray_cluster: Any, worker_class: type) -> None:
    pool = RayResourcePool([2], use_gpu=False, max_colocate_count=1)
    with RayWorkerGroup(pool, RayClassWithInitArgs(worker_class)) as group:
        with pytest.raises(WorkerError, match=r"Plain.interrupted raised KeyboardInterrupt\('of the method'\)"):
            group.interrupted()
        with pytest.raises(TypeError, match=r"Plain.yields returned a generator"):
            group.yields()
        assert group.uses_its_own() == [[7, 8, 9, 10]] * 2, "inside a rank a generator is one"
        if worker_class is Looped:
            with pytest.raises(WorkerError, match=r"Looped.interrupted_in_loop raised KeyboardInterrupt"):
                group.interrupted_in_loop()
        assert group.number() == [0, 1], "the ranks work on"
        if worker_class is Looped:
            with pytest.raises(WorkerDiedError, match="SystemExit: 5") as caught:
                group.exits(1)
            assert caught.value.rank == 1


def test_a_constructor_that_exits_in_a_class_with_coroutines_ends_the_start(ray_cluster: Any) -> None:
    pool = RayResourcePool([1], use_gpu=False, max_colocate_count=1)
    with pytest.raises(WorkerDiedError, match="SystemExit: 6"):
        RayWorkerGroup(pool, RayClassWithInitArgs(Looped, exit_code=6))
