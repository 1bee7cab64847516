"""Rows as a stream: a torch dataset that waits for the next batch, and its loader."""

from transferqueue.streaming.data_loader import StreamingDataLoader
from transferqueue.streaming.dataset import StreamingDataset

__all__ = ["StreamingDataLoader", "StreamingDataset"]
