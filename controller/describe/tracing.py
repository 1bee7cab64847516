"""`WorkerGroup.trace`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

from transferqueue.controller.describe.trace import Trace
from transferqueue.controller.describe.traced_sender import TracedSender

if TYPE_CHECKING:
    from transferqueue.controller.rank_set import RankSet


class Tracing:
    """What a `WorkerGroup` tells of its calls."""

    if TYPE_CHECKING:
        _ranks: RankSet
        _user_class: type
        _positions: list[int]

    def trace(self, timeout_s: float = 5.0, *, file: TextIO | None = None) -> Trace:
        """``with group.trace():`` prints of every call which rows, shapes and pads each rank got, and which ranks'
        outputs were collected; also of calls on other groups over the same ranks (roles, slices). A traced call is sent
        by the way that is slower.

        A call is printed before it is waited for. Ranks that have not answered after `timeout_s` are named. A call
        that does not block is printed as done when its result is fetched here, and not when its future goes on to
        another call.

        Args:
            timeout_s: when a rank counts as missing.
            file: where to print; None: standard output.
        """
        return Trace(self._ranks, timeout_s, file)

    @property
    def traces(self) -> list[Trace]:
        """The traces that are on."""
        return self._ranks.traces

    @property
    def worker_class(self) -> type:
        """The class whose methods the group shows."""
        return self._user_class

    @property
    def rank_numbers(self) -> list[int]:
        """Of each rank of this group, its number in the group that started it."""
        return list(self._positions)

    @property
    def _sender(self) -> Any:
        """What `execute_all` and its kind send with."""
        return TracedSender(self) if self._ranks.traces else self  # type: ignore[arg-type]
