"""A worker method as it stands on the group: dispatch, execute, collect."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from transferqueue.controller.custom_execute import execute_by_name
from transferqueue.controller.describe.traced_sender import TracedSender
from transferqueue.controller.joined_rank import JoinedRank
from transferqueue.controller.local_rows import AS_IT_CAME, arranged
from transferqueue.controller.method_signature import MethodSignature
from transferqueue.controller.named_code import under_name
from transferqueue.controller.padding import Padding, padded_arguments, refuse_uneven, wants_padding
from transferqueue.workers.dispatch_mode import DispatchMode
from transferqueue.workers.dispatch_modes import resolve_dispatch_mode
from transferqueue.workers.errors import DispatchError
from transferqueue.workers.execute import Execute
from transferqueue.workers.futures import materialized, received
from transferqueue.workers.megatron_layout import megatron_joined_ranks
from transferqueue.workers.padding_config import DataProtoConfig
from transferqueue.workers.padding_mask import TAKES_PADDED_BATCHES
from transferqueue.workers.register import Registration
from transferqueue.workers.write_back import MegatronWrites

if TYPE_CHECKING:
    from transferqueue.controller.worker_group import WorkerGroup


_NO_PADDING = Padding()


class GroupMethod:
    """``group.method(...)``: spreads the arguments over the ranks, runs the method there, collects the outputs.

    With `Execute.RANK_ZERO` the result is rank 0's output. A method registered with ``blocking=False`` gives a
    `DataProtoFuture` where its mode joins the rows of the ranks, else a future that is also a list of references (in
    this process: a future).
    Arguments that the method does not take, or that its mode cannot spread, are refused before anything is sent. The
    functions of the mode are those that it has when the group is made.
    """

    _group: WorkerGroup

    def __init__(self, name: str, function: Any, registration: Registration, group_name: str, class_name: str) -> None:
        # A class for each method, for the name that its calls have in tracebacks.
        self._class = type(name, (GroupMethod,), {"__call__": under_name(GroupMethod.__call__, name)})
        self._registration = registration
        self._mode = resolve_dispatch_mode(registration.dispatch_mode)
        self.__name__ = name
        self.__qualname__ = f"{group_name}.{name}"
        self.__doc__ = function.__doc__
        self._signature = MethodSignature(function, f"{class_name}.{name}")
        self.__signature__ = self._signature.signature
        self._takes_padded_batches = getattr(function, TAKES_PADDED_BATCHES, False)

    def bound_to(self, group: WorkerGroup) -> GroupMethod:
        """The method of one group. A group makes it anew at each look-up, as Python does for methods: kept in the
        group, it would be a reference cycle, and the room of a dropped group would stay taken until the garbage
        collector runs."""
        bound: GroupMethod = object.__new__(self._class)
        bound.__dict__.update(self.__dict__, _group=group)
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        registration, group, mode = self._registration, self._group, self._mode
        self._signature.check(args, kwargs)
        if registration.materialize_futures:
            args, kwargs = materialized(args, kwargs)
        padding, arrangement = _NO_PADDING, AS_IT_CAME
        try:
            if mode.row_shards is not None:
                args, kwargs, padding = self._evened(mode, args, kwargs)
                if group.locality != "off" and registration.blocking and registration.execute_mode is Execute.ALL:
                    args, kwargs, arrangement = arranged(group, mode, args, kwargs, padding)
            args, kwargs = self._dispatched(mode.dispatch_fn(group, *args, **kwargs))
        except DispatchError as error:
            raise error.named(self.__qualname__, self._signature.names_of(args)) from None
        if padding.by_value is not None and self._takes_padded_batches:
            args, kwargs = padding.tell_ranks(args, kwargs)
        sender: Any = self._traced(mode, padding, args) if group.traces else group
        execute, blocking = registration.execute_mode, registration.blocking
        if mode.rank_zero_only and execute is Execute.ALL:
            future = sender.submit_rank_zero(
                self.__name__, args, kwargs, lambda outputs: mode.collect_fn(group, outputs)
            )
        elif execute is Execute.RANK_ZERO:
            future = sender.submit_rank_zero(self.__name__, args, kwargs, operator.itemgetter(0))
        elif execute is not Execute.ALL:
            collect = lambda outputs: padding.drop_from(mode.collect_fn(group, outputs))  # noqa: E731
            return execute_by_name(group, execute, blocking, self.__name__, args, kwargs, collect)
        elif blocking:
            return arrangement.restored(self._collected(mode, padding, sender.call_all(self.__name__, args, kwargs)))
        else:
            finish = lambda outputs: self._collected(mode, padding, outputs)  # noqa: E731
            if mode.joined_ranks is None:
                return sender.submit_all(self.__name__, args, kwargs, finish)
            joined = [JoinedRank(rank, *padding.of_rank(rank)) for rank in mode.joined_ranks(group)]
            return sender.submit_joined(self.__name__, args, kwargs, finish, joined)
        return future.get() if blocking else future

    def _dispatched(self, spread: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if isinstance(spread, (tuple, list)) and len(spread) == 2 and isinstance(spread[1], dict):
            return spread[0], spread[1]
        raise TypeError(
            f"{self.__qualname__}: the dispatch_fn of its dispatch mode must return (args, kwargs), a sequence and a "
            f"dict; got {type(spread).__name__}: {spread!r:.200}"
        )

    def _collected(self, mode: DispatchMode, padding: Padding, outputs: list[Any]) -> Any:
        if not padding.added:
            return mode.collect_fn(self._group, outputs)
        return padding.drop_from(mode.collect_fn(self._group, padding.trim_outputs(outputs)))

    def _traced(self, mode: DispatchMode, padding: Padding, args: tuple[Any, ...]) -> TracedSender:
        group = self._group
        collected: Callable[[], Sequence[int]] | None = None
        if mode.joined_ranks is not None:
            collected = functools.partial(mode.joined_ranks, group)
        elif isinstance(mode.writes_back, MegatronWrites):
            collected = functools.partial(megatron_joined_ranks, mode.writes_back.pp_as_dp, group)
        return TracedSender(group, self._signature.names_of(args), collected, lambda rank: padding.of_rank(rank)[1])

    def _evened(
        self, mode: DispatchMode, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], Padding]:
        """Rows that do not divide, treated as the method, the batch, the group or the process say, in that order."""
        group, row_shards = self._group, mode.row_shards
        assert row_shards is not None  # the caller looked
        pads = mode.takes_pads and self._registration.auto_padding
        if pads is None:
            pads = wants_padding(args, kwargs) or (
                DataProtoConfig.auto_padding if group.auto_padding is None else group.auto_padding
            )
        if pads:
            args, kwargs = received(args, kwargs)  # how many rows are missing is known only then
            shards = row_shards(group)
            own = range(group.world_size) if shards == group.world_size else ()
            shard_of_rank = mode.shard_of_rank(group) if mode.shard_of_rank else own
            return padded_arguments(args, kwargs, shards, shard_of_rank)
        if (self._registration.uneven or group.uneven) == "error":
            args, kwargs = received(args, kwargs)
            refuse_uneven(args, kwargs, row_shards(group))
        return args, kwargs, _NO_PADDING

    def __repr__(self) -> str:
        return f"<group method {self.__qualname__}{self.__signature__}>"
