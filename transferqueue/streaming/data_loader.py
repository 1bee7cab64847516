"""A torch DataLoader for `StreamingDataset`."""

from __future__ import annotations

import multiprocessing
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

from transferqueue.streaming.dataset import StreamingDataset
from transferqueue.streaming.worker_place import WorkerStart


class StreamingDataLoader(DataLoader[Any]):
    """A DataLoader without batching of its own: it yields what the dataset yields, ``(TensorDict, BatchMeta)``.

    Items come as they are ready; with `dp_rank`, in the order of the workers, which is the same in each process.
    Worker processes fetch ahead (`prefetch_factor` micro-batches each); no row goes to two of them. Without
    `collate_fn` they fetch metadata only and the rows are read in the process that iterates, as views: nothing is
    copied or sent between processes. With a `collate_fn` they read the rows, and what it returns is sent.

    Dropping the iterator, or the loader where `persistent_workers` is set, ends workers that wait for rows. Rows that
    were fetched ahead and not yielded stay consumed.

    Args:
        dataset: what to iterate.
        num_workers, pin_memory, worker_init_fn, multiprocessing_context, prefetch_factor, persistent_workers,
            pin_memory_device: as `torch.utils.data.DataLoader` has them.
        collate_fn: called with each ``(TensorDict, BatchMeta)``, in the worker; what it returns is yielded.
    """

    def __init__(
        self,
        dataset: StreamingDataset,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
    ) -> None:
        self._metadata_only = collate_fn is None and num_workers > 0 and not pin_memory and dataset.sends_metadata
        super().__init__(
            dataset,
            batch_size=None,
            num_workers=num_workers,
            collate_fn=collate_fn or _as_it_is,
            pin_memory=pin_memory,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            # One worker may have fetched what another one waits for. Only processes of one rank must see one order.
            in_order=dataset.dp_rank is not None,
        )

    def __iter__(self) -> Any:
        if not self.num_workers:
            return super().__iter__()
        if self.persistent_workers and self._iterator is not None:
            return _Reading(super().__iter__(), self._reader())
        stop = (self.multiprocessing_context or multiprocessing).Event()
        users = self.worker_init_fn
        self.worker_init_fn = WorkerStart(stop, self._metadata_only, users)
        try:
            items = _Reading(super().__iter__(), self._reader())
        finally:
            self.worker_init_fn = users
        # Runs before torch joins the workers, which then have nothing to wait for.
        weakref.finalize(self if self.persistent_workers else items, stop.set)
        return items

    def reset(self) -> None:
        """See `StreamingDataset.reset`. Reaches no workers that run already."""
        self._streaming_dataset().reset()

    def step(self, partition_id: str) -> None:
        """See `StreamingDataset.step`. Reaches no workers that run already."""
        self._streaming_dataset().step(partition_id)

    def get_buffer(self) -> list[Any]:
        """The batches that the dataset keeps in this process."""
        return self._streaming_dataset().buffer

    def _streaming_dataset(self) -> StreamingDataset:
        dataset = self.dataset
        assert isinstance(dataset, StreamingDataset)  # the constructor takes no other
        return dataset

    def _reader(self) -> Callable[[Any], Any] | None:
        dataset = self._streaming_dataset()
        return (lambda item: (dataset.read(item[1]), item[1])) if self._metadata_only else None


class _Reading(Iterator[Any]):
    """The items of torch's iterator, with the rows of those that are metadata."""

    def __init__(self, items: Iterator[Any], read: Callable[[Any], Any] | None) -> None:
        self._items = items
        self._read = read

    def __next__(self) -> Any:
        try:
            item = next(self._items)
        except StopIteration:
            raise
        except Exception as error:
            # torch's frames hold the error that holds them, and with it the iterator: it would live until the garbage
            # collector comes, which closes its queues first, so that its workers are not told to end.
            raise error.with_traceback(None)  # noqa: B904
        return item if self._read is None else self._read(item)


def _as_it_is(item: Any) -> Any:
    return item
