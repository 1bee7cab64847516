"""Saving and loading, in the halves that the surface names."""

from __future__ import annotations

import os
from typing import Any

from transferqueue.aio import asynchronous
from transferqueue.compat.keyed_requests import KeyedRequests

AnyPath = str | os.PathLike[str]


class CheckpointRequests(KeyedRequests):
    """Part of the compatible `TransferQueueClient`."""

    def save_storage_checkpoint(self, checkpoint_dir: AnyPath, metadata: Any = None) -> None:
        """Writes fields and the rows that they belong to, so that the directory is a checkpoint by itself; see the
        native `save_checkpoint` for what is in it, and for errors."""
        self._native.save_checkpoint(checkpoint_dir, metadata={} if metadata is None else metadata)

    def load_storage_checkpoint(self, checkpoint_dir: AnyPath) -> None:
        """Loads what `save_storage_checkpoint` wrote; before or after the other half."""
        self._native.load_checkpoint(checkpoint_dir)

    def save_controller_checkpoint(self, path: AnyPath) -> None:
        """Writes keys, tags, consumption and the states of samplers to one file."""
        with self._request("save_controller_checkpoint"):
            self._native.save_controller_checkpoint(path)

    def load_controller_checkpoint(self, path: AnyPath) -> None:
        """Loads what `save_controller_checkpoint` wrote; rows that are there keep their fields."""
        with self._request("load_controller_checkpoint"):
            self._native.load_controller_checkpoint(path)

    async_save_storage_checkpoint = asynchronous(save_storage_checkpoint)
    async_load_storage_checkpoint = asynchronous(load_storage_checkpoint)
    async_save_controller_checkpoint = asynchronous(save_controller_checkpoint)
    async_load_controller_checkpoint = asynchronous(load_controller_checkpoint)
