"""The client of programs of TransferQueue 0.1.11: blocking and asynchronous calls on one class."""

from __future__ import annotations

from transferqueue.compat.checkpoint_requests import CheckpointRequests

__all__ = ["TransferQueueClient"]


class TransferQueueClient(CheckpointRequests):
    """Every call of the surface on the rows of a session, each also as ``async_<name>``, from any thread and any number
    of event loops. A request that fails raises RuntimeError with the original type and message.

    Programs get it from `get_client`.
    """
