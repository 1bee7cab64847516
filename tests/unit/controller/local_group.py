"""A worker group in one process: the whole of dispatch and collect, without Ray."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transferqueue.controller import WorkerGroup
from transferqueue.workers import Future, RankInfo
from transferqueue.workers.arguments import arguments_for_ranks, value_for_rank


class Done(Future):
    def __init__(self, result: Any) -> None:
        self._result = result

    def get(self, timeout_s: float | None = None) -> Any:
        return self._result

    def done(self) -> bool:
        return True


class LocalGroup(WorkerGroup):
    """`world_size` workers, each made by `make`, called one after the other. `sent` records what each call shipped."""

    def __init__(self, make: Callable[[], Any], world_size: int, *, auto_padding: bool = False) -> None:
        super().__init__(auto_padding=auto_padding)
        self.local_workers = []
        for rank in range(world_size):
            worker = make()
            worker.__dict__["_rank_info"] = RankInfo(rank, world_size, rank, world_size)
            if hasattr(worker, "setup"):
                worker.setup()
            self.local_workers.append(worker)
        self.sent: list[list[Any]] = []
        self._bind_worker_method(type(self.local_workers[0]))

    @property
    def world_size(self) -> int:
        return len(self.local_workers)

    def submit_all(
        self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Callable[[list[Any]], Any]
    ) -> Future:
        arguments = arguments_for_ranks(args, kwargs, self.world_size)
        self.sent.append([mine for mine, _ in arguments])
        outputs = [
            getattr(worker, method_name)(*mine, **named)
            for worker, (mine, named) in zip(self.local_workers, arguments, strict=True)
        ]
        return Done(finish(outputs))

    def submit_rank_zero(
        self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Callable[[list[Any]], Any]
    ) -> Future:
        mine = [value_for_rank(value, 0) for value in args]
        named = {name: value_for_rank(value, 0) for name, value in kwargs.items()}
        return Done(finish([getattr(self.local_workers[0], method_name)(*mine, **named)]))
