"""The client: every call on a session's rows, blocking and asynchronous."""

from transferqueue.client.client import TransferQueueClient

__all__ = ["TransferQueueClient"]
