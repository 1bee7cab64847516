"""What a bridged call did: counted in the session, where its metrics find it, and one line in the log, at INFO."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.read_report import ReadReport
from transferqueue.workers.ranks import rank_of

if TYPE_CHECKING:
    from transferqueue.client import TransferQueueClient

logger = logging.getLogger("transferqueue.bridge")

_PARTITIONS_SHOWN = 3


@dataclass
class CallLog:
    """What a call with metadata did; filled in as it goes, written once at its end.

    Attributes:
        client: of the session that the call is about; None: of none, as its batches are empty.
        read_s: from metadata to TensorDicts, waiting included.
        done: the call ended without an error.
    """

    method: str
    owner: object
    metas: Sequence[Any]
    client: TransferQueueClient | None = None
    reads: list[ReadReport] = field(default_factory=list)
    read_s: float = 0.0
    method_s: float = 0.0
    write_back_s: float = 0.0
    done: bool = False

    def finish(self) -> None:
        """Counts the call, and writes its line where somebody wants it."""
        if self.client is not None:
            self.client.count_method(
                self.method,
                rows=self.metas[0].size,
                get_s=self.read_s,
                run_s=self.method_s,
                put_s=self.write_back_s,
                viewed_bytes=sum(read.bytes_viewed for read in self.reads),
                copied_bytes=sum(read.bytes_copied for read in self.reads),
                failed=not self.done,
            )
        if logger.isEnabledFor(logging.INFO):
            self._write()

    def _write(self) -> None:
        reads = self.reads
        logger.info(
            "%s rank=%d pid=%d partition=%s rows=%d viewed=%dB copied=%dB resolve=%.6fs wait=%.6fs method=%.6fs "
            "write_back=%.6fs",
            self.method,
            rank_of(self.owner),
            os.getpid(),
            partition_text(self.metas),
            self.metas[0].size,
            sum(read.bytes_viewed for read in reads),
            sum(read.bytes_copied for read in reads),
            sum(read.resolve_s for read in reads),
            sum(read.wait_s for read in reads),
            self.method_s,
            self.write_back_s,
        )


def start_log(method: str, owner: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallLog:
    """For a call with these arguments, which begins now."""
    metas = [value for value in (*args, *kwargs.values()) if isinstance(value, (BatchMeta, KVBatchMeta))]
    return CallLog(method, owner, metas)


def partition_text(metas: Sequence[Any]) -> str:
    """The partitions of all metadata arguments, in order of appearance: ``train_0`` or ``train_0,val``."""
    names: list[str] = []
    for meta in metas:
        ids = getattr(meta, "partition_ids", None)
        names.extend(ids if ids is not None else [meta.partition_id] if meta.partition_id else [])
    distinct = list(dict.fromkeys(names))
    shown = ",".join(distinct[:_PARTITIONS_SHOWN])
    more = len(distinct) - _PARTITIONS_SHOWN
    return (shown or "-") + (f",and_{more}_more" if more > 0 else "")
