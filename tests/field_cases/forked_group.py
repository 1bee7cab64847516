"""A worker group whose ranks are forked processes: collectives among many ranks at the price of a fork each."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from tests.support.sessions import Forked
from transferqueue.controller import WorkerGroup
from transferqueue.controller.describe.rank_report import RankReport
from transferqueue.controller.joined_rank import JoinedRank
from transferqueue.controller.rank_facts import RankFacts, RankState
from transferqueue.controller.rank_set import RankSet
from transferqueue.workers import DataProtoFuture, Future
from transferqueue.workers.arguments import RankArguments, arguments_for_ranks, value_for_rank

ANSWER_WITHIN_S = 60.0


class ForkedRanks(RankSet):
    """One process a rank, which serves calls until it is told to end."""

    def __init__(self, worker_class: type, world_size: int, environment: Mapping[str, str]) -> None:
        def rank_process(rank: int) -> Callable[[Connection], None]:
            def serve(connection: Connection) -> None:
                os.environ.update(environment, RANK=str(rank), WORLD_SIZE=str(world_size))
                os.environ.update(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world_size))
                worker = worker_class()
                while (call := connection.recv()) is not None:
                    name, (args, kwargs) = call
                    try:
                        connection.send((getattr(worker, name)(*args, **kwargs), None))
                    except Exception:
                        connection.send((None, traceback.format_exc()))

            return serve

        self.processes = [Forked(rank_process(rank)) for rank in range(world_size)]
        super().__init__([RankFacts(rank, "here", pid=forked.pid) for rank, forked in enumerate(self.processes)])

    def states(self) -> list[RankState]:
        return [RankState("alive") for _ in self.processes]

    def reports(self, positions: Sequence[int], role: str | None, timeout_s: float) -> dict[int, RankReport]:
        return {}  # nobody describes this group

    def stop(self) -> None:
        self.is_stopped = True
        for process in self.processes:
            process.say(None)
        statuses = [process.join() for process in self.processes]
        self.processes.clear()
        assert not any(statuses), statuses


class ForkedGroup(WorkerGroup):
    """`world_size` ranks of a class without constructor arguments, on each of which `setup` is called. Make it before
    this process has a session."""

    _ranks: ForkedRanks

    def __init__(self, worker_class: type, world_size: int, environment: Mapping[str, str]) -> None:
        super().__init__()
        self._bind_worker_method(worker_class)
        self._show(ForkedRanks(worker_class, world_size, environment), worker_class, owns=True)
        self.execute_all_sync("setup")

    @property
    def workers(self) -> list[Any]:
        return [self._ranks.processes[position] for position in self._positions]

    def submit_all(
        self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Callable[[list[Any]], Any]
    ) -> Future:
        return self._send(self.workers, method_name, arguments_for_ranks(args, kwargs, self.world_size), finish)

    def submit_joined(
        self,
        method_name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        finish: Callable[[list[Any]], Any],
        joined: Sequence[JoinedRank],
    ) -> DataProtoFuture:
        raise NotImplementedError("calls on this group block")

    def submit_rank(
        self,
        rank: int,
        method_name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        finish: Callable[[list[Any]], Any],
    ) -> Future:
        mine = tuple(value_for_rank(value, rank) for value in args)
        named = {name: value_for_rank(value, rank) for name, value in kwargs.items()}
        return self._send([self.workers[rank]], method_name, [(mine, named)], finish)

    def _send(
        self,
        ranks: Sequence[Forked],
        method_name: str,
        arguments: Sequence[RankArguments],
        finish: Callable[[list[Any]], Any],
    ) -> Future:
        for rank, mine in zip(ranks, arguments, strict=True):
            rank.say((self._name_on_rank(method_name), mine))
        return Answers(ranks, finish)


class Answers(Future):
    """What the ranks say; fails the test when one says nothing for a minute."""

    def __init__(self, ranks: Sequence[Forked], finish: Callable[[list[Any]], Any]) -> None:
        self._ranks, self._finish = ranks, finish

    def get(self, timeout_s: float | None = None) -> Any:
        answers = [rank.hear(ANSWER_WITHIN_S) for rank in self._ranks]
        errors = [error for _, error in answers if error]
        assert not errors, errors[0]
        return self._finish([answer for answer, _ in answers])

    def done(self) -> bool:
        return False
