"""The ranks of a `LocalWorkerGroup`."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Future, wait
from typing import Any

from transferqueue.controller.class_with_init_args import ClassWithInitArgs
from transferqueue.controller.death_report import death_of
from transferqueue.controller.describe.rank_report import RankReport, rank_report
from transferqueue.controller.errors import WorkerDiedError, WorkerError, WorkerGroupDeadError, worker_error
from transferqueue.controller.local_rank import LocalRank, RankExit
from transferqueue.controller.rank_facts import RankFacts, RankState
from transferqueue.controller.rank_set import RankSet
from transferqueue.controller.remote_traceback import local_traceback_text, one_line
from transferqueue.errors import TransferTimeoutError

_NODE = "this process"


class LocalRanks(RankSet):
    """Worker objects of this process, each with a thread for its calls.

    Their constructors run one after the other, in rank order.
    """

    def __init__(self, class_with_args: ClassWithInitArgs, world_size: int) -> None:
        super().__init__([RankFacts(rank, _NODE, pid=os.getpid()) for rank in range(world_size)])
        self.local: list[LocalRank] = []
        name = f"{class_with_args.user_class.__name__}.__init__"
        try:
            for facts in self.ranks:
                try:
                    self.local.append(LocalRank(facts.rank, world_size, class_with_args))
                except Exception as error:
                    raise _described(error, facts, name) from error
        except BaseException:
            self.stop()
            raise

    def wait(
        self, calls: Sequence[Future[Any]], ranks: Sequence[RankFacts], method: str, timeout_s: float | None = None
    ) -> list[Any]:
        """The outputs of `calls`, in their order; `ranks` says which rank computes each.

        Raises the first failure without waiting for the other ranks, a `WorkerDiedError` before others;
        `TransferTimeoutError` naming the ranks that have not answered after `timeout_s`.
        """
        done, pending = wait(calls, timeout=timeout_s, return_when=FIRST_EXCEPTION)
        failures: list[WorkerError] = []
        for call, facts in zip(calls, ranks, strict=True):
            if call in done:
                error = CancelledError() if call.cancelled() else call.exception()
                if error is not None:
                    failures.append(_described(error, facts, method))
        for failure in failures:
            if isinstance(failure, WorkerDiedError) and not isinstance(failure, WorkerGroupDeadError):
                self.tell(failure)
        if failures:
            raise failures[0]
        if pending:
            late = [facts for call, facts in zip(calls, ranks, strict=True) if call in pending]
            raise TransferTimeoutError(
                f"{method}: {len(late)} of {len(calls)} ranks have not answered after {timeout_s:g} s: "
                f"{', '.join(facts.text for facts in late)}",
                timeout_s=timeout_s,
                missing=[facts.rank for facts in late],
            )
        return [call.result() for call in calls]

    def states(self) -> list[RankState]:
        return [RankState("dead", local.exit_text) if local.exit_text else RankState("alive") for local in self.local]

    def reports(self, positions: Sequence[int], role: str | None, timeout_s: float) -> dict[int, RankReport]:
        # Read here and not by the rank's thread, which may be busy.
        local = self.local
        return {position: rank_report(local[position].worker, role) for position in (positions if local else ())}

    def stop(self) -> None:
        """Calls that run go on to their end (a thread cannot be ended from outside); their results are still there."""
        self.is_stopped = True
        local, self.local = self.local, []
        for rank in local:
            rank.stop()


def _described(error: BaseException, facts: RankFacts, method: str) -> WorkerError:
    details: dict[str, Any] = {"rank": facts.rank, "node": facts.node, "pid": facts.pid, "method": method}
    if isinstance(error, CancelledError):
        return WorkerGroupDeadError(f"{method} on {facts.text}: the group was closed before it ran", **details)
    if isinstance(error, RankExit):
        return death_of(facts, method, str(error))
    remote = local_traceback_text(traceback.format_exception(type(error), error, error.__traceback__))
    text = f"{method} failed on {facts.text}: {one_line(error)}\n{remote}"
    return worker_error(error, text, remote_traceback=remote, **details)
