"""A worker group in one process that notes what each call shipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transferqueue.controller import ClassWithInitArgs, LocalWorkerGroup
from transferqueue.controller.local_future import LocalFuture
from transferqueue.workers.arguments import arguments_for_ranks


class LocalGroup(LocalWorkerGroup):
    """`world_size` workers of a class, whose `setup` is called where they have one. `sent` has, of each call, the
    positional arguments of every rank."""

    def __init__(self, user_class: type, world_size: int, *, auto_padding: bool = False) -> None:
        super().__init__(ClassWithInitArgs(user_class), world_size, auto_padding=auto_padding)
        self.sent: list[list[Any]] = []
        if hasattr(user_class, "setup"):
            self.execute_all_sync("setup")
        self.sent.clear()

    @property
    def local_workers(self) -> list[Any]:
        return self.workers

    def submit_all(
        self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Callable[[list[Any]], Any]
    ) -> LocalFuture:
        self.sent.append([mine for mine, _ in arguments_for_ranks(args, kwargs, self.world_size)])
        return super().submit_all(method_name, args, kwargs, finish)
