"""A torch DataLoader over a `StreamingDataset`."""

from __future__ import annotations

from transferqueue.streaming import StreamingDataLoader as NativeLoader

__all__ = ["StreamingDataLoader"]


class StreamingDataLoader(NativeLoader):
    """Yields what the dataset yields, ``(TensorDict, BatchMeta)``.

    Worker processes share the batches of the rank: no row goes to two of them, and all loaders of a rank see one order.
    """
