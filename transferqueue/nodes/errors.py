"""What nodes tell each other and no user sees: the caller asks again, elsewhere or anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from transferqueue.errors import TransferQueueError


class GoneError(TransferQueueError):
    """Payload that was located is not there any more: cleared, overwritten or moved since. Locate it again.

    `rows`: some of the rows (as asked for) that are gone.
    """

    _declared: ClassVar[Mapping[str, Any]] = {"rows": (), "partition_id": None}
    rows: tuple[int, ...]
    partition_id: str | None


class NotHomeError(TransferQueueError):
    """The node asked is not the partition's home (any more); the directory knows which is: `partition_id`, `ordinal`
    of the node that was asked."""

    _declared: ClassVar[Mapping[str, Any]] = {"partition_id": None, "ordinal": None}
    partition_id: str | None
    ordinal: int | None
