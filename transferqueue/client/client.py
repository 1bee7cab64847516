"""`TransferQueueClient`: the calls of `rows`, `consumption`, `reads`, `writes`, `keyed`, `conditions`, `coalescing`,
`checkpointing`, `typed_reads`, `placement`."""

from __future__ import annotations

import inspect

from transferqueue.client.core import Housekeeping
from transferqueue.client.placement import PlacementCalls
from transferqueue.config import Config
from transferqueue.metadata import set_row_shape_lookup
from transferqueue.storage.attachment import Attachment


class TransferQueueClient(PlacementCalls):
    """Everything that one process does with a session's rows.

    Every method is safe from many threads and has an asynchronous form ``async_<name>`` with the same arguments, usable
    from any number of event loops. A call either does all it says or raises and leaves the store as it was.

    Made by `Session.client`; programs get it from `transferqueue.get_client`.
    """

    _looks_up_row_shapes = True

    def __init__(self, attachment: Attachment, config: Config, service: Housekeeping) -> None:
        super().__init__(attachment, config, service)
        if self._looks_up_row_shapes:
            # Metadata carries no per-row shapes; when they are asked for they are read here.
            set_row_shape_lookup(self.row_shapes)

    def __repr__(self) -> str:
        return f"TransferQueueClient(session={self.session!r}{', closed' if self.closed else ''})"


def _name_calls_as_the_user_does() -> None:
    """Messages and `help` say ``TransferQueueClient.wait``; which part of the client a call stands in is nobody's
    business."""
    for name, call in inspect.getmembers(TransferQueueClient, inspect.isfunction):
        if not name.startswith("_"):
            call.__module__ = "transferqueue"
            for function in (call, getattr(call, "__steps__", call)):
                function.__qualname__ = f"TransferQueueClient.{name}"


_name_calls_as_the_user_does()
