"""Streams of batches for torch programs."""

from transferqueue.compat.transfer_queue.dataloader.streaming_dataloader import StreamingDataLoader
from transferqueue.compat.transfer_queue.dataloader.streaming_dataset import StreamingDataset

__all__ = ["StreamingDataLoader", "StreamingDataset"]
