"""A torch dataset of micro-batches, with the arguments of TransferQueue 0.1.11."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensordict import TensorDict

from transferqueue.compat.client_base import session_name
from transferqueue.compat.transfer_queue.client import TransferQueueClient
from transferqueue.compat.transfer_queue.metadata import BatchMeta
from transferqueue.streaming import StreamingDataset as NativeDataset
from transferqueue.streaming.dataset import END, End
from transferqueue.streaming.micro_batches import slice_rows

if TYPE_CHECKING:
    from transferqueue.client import TransferQueueClient as NativeClient

__all__ = ["StreamingDataset", "chunk_batch_fn", "default_fetch_batch_fn"]
_PROMISED_ROWS = "TQ_PRE_ALLOC_SAMPLE_NUM"


class StreamingDataset(NativeDataset):
    """``(TensorDict, BatchMeta)`` micro-batches of a partition as they become ready; waits for them without polling.

    Args:
        config: what ``init`` returned or the named actor's ``get_config`` answers; it names the session.
        batch_size: rows fetched at a time.
        micro_batch_size: rows yielded at a time.
        data_fields: names that a row must have to be ready.
        partition_id: whose rows.
        task_name: who consumes.
        dp_rank: processes of one rank get the same rows where the sampler is rank-aware.
        should_check_consumption_status: ends when the task has consumed every row of the partition, and at least as
            many as the environment's TQ_PRE_ALLOC_SAMPLE_NUM promises; else never.
        fetch_batch_fn: instead of `default_fetch_batch_fn`.
        process_batch_fn: instead of `chunk_batch_fn`.

    Raises:
        ValueError: a size below 1, no fields, a negative rank.
    """

    def __init__(
        self,
        config: Any,
        batch_size: int,
        micro_batch_size: int,
        data_fields: Sequence[str],
        partition_id: str,
        task_name: str,
        dp_rank: int,
        should_check_consumption_status: bool = False,
        fetch_batch_fn: Callable[..., Any] | None = None,
        process_batch_fn: Callable[..., Any] | None = None,
    ) -> None:
        if micro_batch_size < 1:
            raise ValueError(f"micro_batch_size must be >= 1, got {micro_batch_size}")
        if len(data_fields) < 1:
            raise ValueError(f"data_fields must name at least one field, got {data_fields}")
        if dp_rank < 0:
            raise ValueError(f"dp_rank must be greater than or equal to 0, got {dp_rank}")
        super().__init__(
            partition_id,
            fields=data_fields,
            batch_size=batch_size,
            task_name=task_name,
            micro_batch_size=micro_batch_size,
            dp_rank=dp_rank,
            keep_batches=True,
            session=session_name(config["controller"]["zmq_info"]) if config is not None else None,
        )
        self.config = config
        self.data_fields = data_fields
        self.should_check_consumption_status = should_check_consumption_status
        self.fetch_batch_fn = fetch_batch_fn or default_fetch_batch_fn
        self.process_batch_fn = process_batch_fn or chunk_batch_fn
        self.sampling_config = {"dp_rank": dp_rank, "task_name": task_name}
        self._tq_client: TransferQueueClient | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_tq_client": None}

    def _look(self, client: NativeClient) -> tuple[TensorDict, BatchMeta] | End | None:
        if self.should_check_consumption_status and self._all_consumed(client):
            config = {**self.sampling_config, "batch_index": self._number(), "partition_id": self.partition_id}
            # Another process of this rank may have been first: then its batches are still to come.
            if not self._is_repeated(client, config):
                return END
        batch, metadata = self.fetch_batch_fn(
            tq_client=self._surface_client(),
            data_fields=self.data_fields,
            batch_size=self.batch_size,
            partition_id=self.partition_id,
            task_name=self.task_name,
            sampling_config=self.sampling_config,
            batch_index=self._number(),
        )
        return None if batch is None else (batch, metadata)

    def _micro_batches(self, batch: TensorDict, metadata: Any) -> Iterator[Any]:
        yield from self.process_batch_fn(batch, metadata, micro_batch_size=self.micro_batch_size)

    def _all_consumed(self, client: NativeClient) -> bool:
        consumed = client._open().consumed_rows(self.partition_id, self.task_name) or 0
        if consumed < max(1, _promised_rows()):
            return False
        _, marks = client.get_consumption_status(self.task_name, self.partition_id)
        # Rows that were cleared after they were consumed do not count: none left is all consumed.
        return marks is not None and bool((marks == 1).all())

    def _surface_client(self) -> TransferQueueClient:
        if self._tq_client is None or not self._tq_client.usable:
            self._tq_client = TransferQueueClient(f"StreamingDataset_{os.getpid()}", {"session": self.client().session})
        return self._tq_client


def default_fetch_batch_fn(
    tq_client: TransferQueueClient,
    data_fields: Sequence[str],
    batch_size: int,
    partition_id: str,
    task_name: str,
    sampling_config: Mapping[str, Any],
    batch_index: int,
) -> tuple[TensorDict | None, BatchMeta]:
    """Fetches rows, which marks them consumed, and reads them; (None, empty metadata) when there are too few and the
    system is in polling mode.

    Raises:
        RuntimeError: too few rows within some seconds, in a system without ``controller.polling_mode``.
    """
    metadata = tq_client.get_meta(
        data_fields=list(data_fields),
        batch_size=batch_size,
        partition_id=partition_id,
        task_name=task_name,
        sampling_config={**sampling_config, "batch_index": batch_index, "partition_id": partition_id},
    )
    return (tq_client.get_data(metadata) if metadata.size else None), metadata


def chunk_batch_fn(
    td: TensorDict, batch_meta: BatchMeta, micro_batch_size: int = 1
) -> list[tuple[TensorDict, BatchMeta]]:
    """Micro-batches of `micro_batch_size` rows that share the batch's memory; the last may be smaller. The metadata is
    divided evenly, as ``batch_meta.chunk`` does.

    Raises:
        TypeError: not a TensorDict.
        ValueError: a size that is not a positive int or larger than the batch, a TensorDict without batch size.
    """
    if not isinstance(td, TensorDict):
        raise TypeError(f"Expected TensorDict, got {type(td).__name__}")
    if isinstance(micro_batch_size, bool) or not isinstance(micro_batch_size, int) or micro_batch_size <= 0:
        raise ValueError(f"micro_batch_size must be a positive integer, got {micro_batch_size!r}")
    if not td.batch_size:
        raise ValueError("the TensorDict must have a batch size")
    rows = td.batch_size[0]
    if micro_batch_size > rows:
        raise ValueError(f"micro_batch_size ({micro_batch_size}) exceeds total batch size ({rows})")
    starts = range(0, rows, micro_batch_size)
    pieces = [slice_rows(td, start, min(start + micro_batch_size, rows)) for start in starts]
    return list(zip(pieces, batch_meta.chunk(len(starts)), strict=True))


def _promised_rows() -> int:
    text = os.environ.get(_PROMISED_ROWS) or "1"
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{_PROMISED_ROWS} must be a number of rows, not {text!r}") from None
