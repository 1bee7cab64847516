"""The calls of a group that is traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transferqueue.controller.collected_future import CollectedFuture
from transferqueue.controller.describe.sent_value import SentValue, sent_value
from transferqueue.controller.describe.trace import Trace
from transferqueue.controller.describe.traced_call import TracedCall
from transferqueue.controller.joined_rank import JoinedRank
from transferqueue.controller.local_future import LocalFuture
from transferqueue.workers.arguments import arguments_for_ranks, value_for_rank
from transferqueue.workers.data_proto import DataProtoFuture

if TYPE_CHECKING:
    from transferqueue.controller.worker_group import WorkerGroup

_Records = list[tuple[Trace, TracedCall]]


class TracedSender:
    """Sends for a group while it is traced: the same calls, each noted in the group's traces.

    Args:
        group: the group.
        names: of the positional arguments, as far as they are known.
        collected: the ranks of the group whose outputs make up the result, asked when it is there; None: all that run.
        pads_of_rank: the pads that a rank has in batches by value.
    """

    def __init__(
        self,
        group: WorkerGroup,
        names: Sequence[str] = (),
        collected: Callable[[], Sequence[int]] | None = None,
        pads_of_rank: Callable[[int], int] | None = None,
    ) -> None:
        self._group = group
        self._names = names
        self._collected = collected
        self._pads_of_rank = pads_of_rank or (lambda rank: 0)

    def call_all(self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """As `WorkerGroup.call_all`."""
        # By the way whose references can be seen, so that the ranks that do not answer can be named.
        records = self._start(method_name, args, kwargs, list(range(self._group.world_size)))
        try:
            future = self._group.submit_all(method_name, args, kwargs, list)
            self._follow(records, future)
            outputs: list[Any] = future.get()
        except BaseException as error:
            self._fail(records, error)
            raise
        self._end(records)
        return outputs

    def submit_all(
        self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Callable[[list[Any]], Any]
    ) -> Any:
        """As `WorkerGroup.submit_all`."""
        records = self._start(method_name, args, kwargs, list(range(self._group.world_size)))
        return self._followed(
            records, lambda finished: self._group.submit_all(method_name, args, kwargs, finished), finish
        )

    def submit_joined(
        self,
        method_name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        finish: Callable[[list[Any]], Any],
        joined: Sequence[JoinedRank],
    ) -> Any:
        """As `WorkerGroup.submit_joined`."""
        records = self._start(method_name, args, kwargs, list(range(self._group.world_size)))
        return self._followed(
            records, lambda finished: self._group.submit_joined(method_name, args, kwargs, finished, joined), finish
        )

    def submit_rank(
        self,
        rank: int,
        method_name: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        finish: Callable[[list[Any]], Any],
    ) -> Any:
        """As `WorkerGroup.submit_rank`."""
        records = self._start(method_name, args, kwargs, [rank])
        return self._followed(
            records, lambda finished: self._group.submit_rank(rank, method_name, args, kwargs, finished), finish
        )

    def submit_rank_zero(
        self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], finish: Callable[[list[Any]], Any]
    ) -> Any:
        """As `WorkerGroup.submit_rank_zero`."""
        return self.submit_rank(0, method_name, args, kwargs, finish)

    def _followed(
        self, records: _Records, submit: Callable[[Callable[[list[Any]], Any]], Any], finish: Callable[[list[Any]], Any]
    ) -> Any:
        def finished(outputs: list[Any]) -> Any:
            try:
                result = finish(outputs)
            except BaseException as error:
                self._fail(records, error)
                raise
            self._end(records)
            return result

        try:
            future = submit(finished)
        except BaseException as error:
            self._fail(records, error)
            raise
        self._follow(records, future)
        if isinstance(future, CollectedFuture):
            future.on_error = lambda error: self._fail(records, error)
        return future

    def _follow(self, records: _Records, future: Any) -> None:
        """Notes what each rank is waited for with."""
        for _, call in records:
            if isinstance(future, DataProtoFuture):
                numbers = self._group.rank_numbers
                ranks = [numbers[rank] for rank in self._collected()] if self._collected else list(call.sent)
                call.pending = dict(zip(ranks, future.futures, strict=True))
            else:
                outputs = future.calls if isinstance(future, LocalFuture) else list(future)
                call.pending = dict(zip(call.sent, outputs, strict=True))

    def _start(
        self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any], ranks: Sequence[int]
    ) -> _Records:
        group = self._group
        numbers = group.rank_numbers
        if len(ranks) == group.world_size:
            arguments = arguments_for_ranks(args, kwargs, group.world_size)
        else:
            mine = tuple(value_for_rank(value, ranks[0]) for value in args)
            arguments = [(mine, {name: value_for_rank(value, ranks[0]) for name, value in kwargs.items()})]
        described: dict[int, SentValue] = {}  # a value that all ranks get is described once
        sent = {
            numbers[rank]: {
                name: self._value(value, rank, described)
                for name, value in [*zip(self._named(len(positional)), positional, strict=True), *named.items()]
            }
            for rank, (positional, named) in zip(ranks, arguments, strict=True)
        }
        label = f"{group.worker_class.__name__}.{method_name}"
        return [(trace, trace.sent(label, sent)) for trace in group.traces]

    def _value(self, value: Any, rank: int, described: dict[int, SentValue]) -> SentValue:
        pads = self._pads_of_rank(rank)
        if pads:
            return sent_value(value, pads)
        if id(value) not in described:
            described[id(value)] = sent_value(value)
        return described[id(value)]

    def _named(self, count: int) -> list[str]:
        return [*self._names[:count], *(f"argument {i}" for i in range(len(self._names), count))]

    def _end(self, records: _Records) -> None:
        for trace, call in records:
            numbers = self._group.rank_numbers
            mine = list(call.sent) if self._collected is None else [numbers[rank] for rank in self._collected()]
            trace.done(call, mine)

    def _fail(self, records: _Records, error: BaseException) -> None:
        for trace, call in records:
            trace.failed(call, error)
