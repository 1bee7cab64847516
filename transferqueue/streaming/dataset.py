"""A torch dataset over the rows that a task has not consumed yet, as they become ready."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensordict import TensorDict
from torch.utils.data import IterableDataset

from transferqueue.client.core import check_names, check_partition
from transferqueue.errors import (
    PartitionNotFoundError,
    SessionNotFoundError,
    TransferQueueError,
    TransferTimeoutError,
    name_some,
)
from transferqueue.metadata import BatchMeta
from transferqueue.session import attach, current_session
from transferqueue.streaming.micro_batches import slice_rows
from transferqueue.streaming.worker_place import WorkerPlace
from transferqueue.waiting import Steps, deadline, run_steps

if TYPE_CHECKING:
    from transferqueue.client import TransferQueueClient

Item = tuple[TensorDict, BatchMeta]


class End:
    """What a look returns instead of a batch when the stream is over."""


END = End()


class StreamingDataset(IterableDataset[Item]):
    """``(TensorDict, BatchMeta)`` batches of a partition, each as soon as its rows are ready; iterating waits for them.

    Rows are marked consumed by `task_name` when they are fetched, so any number of consumers, in any processes, share a
    task without getting a row twice. A consumer may start before the partition exists. The dataset can be pickled; each
    process attaches to the session by itself, DataLoader workers included (fork and spawn).

    Tensors are copy-on-write views, as `TransferQueueClient.get_data` returns them; micro-batches share the memory of
    their batch.

    Args:
        partition_id: whose rows.
        fields: names that a row must have to be ready, and that are read.
        batch_size: rows fetched at a time; the last batch before `total_rows` may be smaller.
        task_name: who consumes.
        micro_batch_size: rows yielded at a time; default: `batch_size`. The last piece of a batch may be smaller.
        total_rows: the rows that were promised, of all consumers of the task together: the stream ends when the task
            has consumed so many, those cleared since included, and not before, however long nothing is there. None:
            it never ends by itself.
        partial: takes fewer rows than `batch_size` rather than wait for more.
        dp_rank: for samplers that give all processes of a rank the same batches; sent with the number of the batch.
        sampling: further entries for the sampler.
        timeout: seconds to wait for a batch; None: for ever (Ctrl-C ends it).
        mode: "cow", "shared" or "copy", see `TransferQueueClient.get_data`.
        keep_batches: keeps every batch that was fetched in `buffer`, so that `reset` can replay them.
        session: name of the session; default: this process's, or the one it would join.

    Attributes:
        buffer: the batches that were kept.
        batch_index: how many batches of this process were begun since the start, the last `step` or `reset`.

    Raises:
        ValueError, TypeError: sizes that are not positive, names that are no names.
        TransferTimeoutError: (iterating) no batch within `timeout`; says how many rows there are.
        PartitionNotFoundError: (iterating) the partition was cleared before `total_rows` were consumed.
    """

    def __init__(
        self,
        partition_id: str,
        *,
        fields: str | Sequence[str],
        batch_size: int,
        task_name: str,
        micro_batch_size: int | None = None,
        total_rows: int | None = None,
        partial: bool = False,
        dp_rank: int | None = None,
        sampling: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        mode: str | None = None,
        keep_batches: bool = False,
        session: str | None = None,
    ) -> None:
        super().__init__()
        _check_sizes(batch_size, batch_size if micro_batch_size is None else micro_batch_size, total_rows)
        deadline(timeout)
        if not task_name:
            raise ValueError("a stream needs a task_name: rows are marked consumed for that task")
        self.partition_id = check_partition(partition_id)
        self.fields = check_names(fields, "fields")
        self.batch_size = batch_size
        self.micro_batch_size = batch_size if micro_batch_size is None else micro_batch_size
        self.task_name = task_name
        self.total_rows = total_rows
        self.partial = partial
        self.dp_rank = dp_rank
        self.sampling = dict(sampling or {})
        self.timeout = timeout
        self.mode = mode
        self.keep_batches = keep_batches
        self.buffer: list[Item] = []
        self.batch_index = 0
        self._session = session if session is not None else _session_of_this_process()
        self._metadata_only = False
        self._place: WorkerPlace | None = None
        self._partition_seen = False

    def __iter__(self) -> Iterator[Item]:
        """Goes on where the last iteration of this process stopped."""
        self._take_place()
        while True:
            if self.batch_index < len(self.buffer):
                batch = self.buffer[self.batch_index]
            else:
                fetched = self._wait_for_batch()
                if fetched is None:
                    return
                batch = fetched
                if self.keep_batches:
                    self.buffer.append(batch)
            self.batch_index += 1
            yield from self._micro_batches(*batch)

    def reset(self) -> None:
        """The next iteration begins with the batches in `buffer`."""
        self.batch_index = 0

    def step(self, partition_id: str) -> None:
        """Goes on with another partition: forgets what was kept."""
        self.partition_id = check_partition(partition_id)
        self.buffer = []
        self.batch_index = 0
        self._partition_seen = False

    def client(self) -> TransferQueueClient:
        """This process's client of the session.

        Raises:
            SessionNotFoundError: there is none, or this process is in another one.
        """
        if self._session is None:
            self._session = current_session().name
        return attach(self._session).client

    @property
    def sends_metadata(self) -> bool:
        """Whether loaders may have workers fetch metadata only, and read the rows themselves."""
        return not self.keep_batches

    def read(self, metadata: BatchMeta) -> TensorDict:
        """The rows of metadata that this dataset gave out."""
        return self.client().get_data(metadata, fields=self.fields, mode=self.mode)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_place": None}

    def _take_place(self) -> None:
        """Of `count` workers, number i has batches i, i + count, ... of the rank: a sampler that gives a rank the same
        batch for the same number then gives no batch to two of them."""
        here = WorkerPlace.here()
        if self._place is None or (self._place.index, self._place.count) != (here.index, here.count):
            self.buffer = self.buffer[here.index :: here.count]
            self.batch_index = len(range(here.index, self.batch_index, here.count))
        self._place = here

    def _number(self) -> int:
        """Of the batch at `batch_index`, among those of all workers."""
        place = self._place or WorkerPlace()
        return place.index + place.count * self.batch_index

    def _wait_for_batch(self) -> Item | None:
        """The next batch; None at the end of the stream."""
        client = self.client()
        place = self._place or WorkerPlace()

        def look() -> Item | End | None:
            return END if place.should_stop() else self._look(client)

        steps: Steps[Item | End] = client._until(
            self.partition_id, deadline(self.timeout), look, lambda: self._too_late(client), place.look_again_s
        )
        found = run_steps(client._store, steps)
        return None if isinstance(found, End) else found

    def _look(self, client: TransferQueueClient) -> Item | End | None:
        """The next batch, or the end, or None when neither is there yet."""
        config = self._sampling_config()
        left = self._rows_left(client)
        size = self.batch_size
        if left is not None and left < size and not self._is_repeated(client, config):
            if left <= 0:
                return END
            size = left
        metadata = client.get_meta(
            self.fields,
            size,
            self.partition_id,
            task_name=self.task_name,
            sampling_config=config,
            polling_mode=True,
            partial=self.partial,
        )
        if not metadata.size:
            return None
        return (TensorDict({}, [metadata.size]) if self._metadata_only else self.read(metadata)), metadata

    def _sampling_config(self) -> dict[str, Any]:
        if self.dp_rank is None:
            return self.sampling
        named = {"task_name": self.task_name, "partition_id": self.partition_id}
        return {**self.sampling, **named, "dp_rank": self.dp_rank, "batch_index": self._number()}

    def _rows_left(self, client: TransferQueueClient) -> int | None:
        if self.total_rows is None:
            return None
        consumed = client._consumed_rows(self.partition_id, self.task_name)
        if consumed is None and self._partition_seen:
            raise PartitionNotFoundError(
                f"partition {self.partition_id!r} was cleared before task {self.task_name!r} had consumed the "
                f"{self.total_rows} rows that its stream was promised",
                partition_id=self.partition_id,
            )
        self._partition_seen = consumed is not None
        return self.total_rows - (consumed or 0)

    def _is_repeated(self, client: TransferQueueClient, config: Mapping[str, Any]) -> bool:
        """Whether the sampler has this batch ready for this rank: another process of it was first."""
        if self.dp_rank is None:
            return False
        return client._progress(self.partition_id, self.task_name, self.fields, config).repeated

    def _too_late(self, client: TransferQueueClient) -> TransferQueueError:
        progress = client._progress(self.partition_id, self.task_name, self.fields, None)
        there, consumed = progress.ready, progress.consumed or 0
        promised = "" if self.total_rows is None else f" of the {self.total_rows} promised"
        return TransferTimeoutError(
            f"waited {self.timeout} s for a batch of {self.batch_size} rows of partition {self.partition_id!r} that "
            f"have {name_some(self.fields)} and are not consumed by task {self.task_name!r}: there are {there}, and it "
            f"has consumed {consumed}{promised}{client._what_does_not_exist(self.partition_id, self.fields)}",
            timeout_s=self.timeout,
            missing=max(0, self.batch_size - there),
        )

    def _micro_batches(self, batch: TensorDict, metadata: BatchMeta) -> Iterator[Item]:
        for start in range(0, metadata.size, self.micro_batch_size):
            stop = min(start + self.micro_batch_size, metadata.size)
            whole = stop - start == metadata.size
            yield (batch, metadata) if whole else (slice_rows(batch, start, stop), metadata[start:stop])


def _check_sizes(batch_size: int, micro_batch_size: int, total_rows: int | None) -> None:
    for name, size in (("batch_size", batch_size), ("micro_batch_size", micro_batch_size)):
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{name} must be an int >= 1, not {size!r}")
    if total_rows is not None and (isinstance(total_rows, bool) or not isinstance(total_rows, int) or total_rows < 0):
        raise ValueError(f"total_rows must be an int >= 0 or None, not {total_rows!r}")


def _session_of_this_process() -> str | None:
    try:
        return current_session().name
    except SessionNotFoundError:
        return None  # made or joined before it is iterated
