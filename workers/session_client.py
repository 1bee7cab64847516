"""The client through which a rank reads and writes the rows that metadata names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from transferqueue.config import SESSION_VARIABLE
from transferqueue.errors import SessionNotFoundError
from transferqueue.session import attach, get_client

if TYPE_CHECKING:
    from transferqueue.client import TransferQueueClient
    from transferqueue.metadata import BatchMeta, KVBatchMeta


_last: TransferQueueClient | None = None


def client_for(metadata: BatchMeta | KVBatchMeta) -> TransferQueueClient:
    """This process's client, attached to the session of `metadata` on first use.

    Metadata that names no session is of the one that this process is in, or that its environment names.

    Raises `SessionNotFoundError` naming both sessions when this process belongs to another one, by an earlier call or
    by its environment.
    """
    global _last
    if metadata.session is None:
        return get_client()
    # Nearly every call is of the session of the one before. A client that was closed here, or whose session was, says
    # so; joining another session closes the one before.
    if _last is not None and _last.session == metadata.session and not _last.closed:
        return _last
    assigned = os.environ.get(SESSION_VARIABLE)
    if assigned and assigned != metadata.session:
        _join_assigned(assigned)
    attach(metadata.session)
    _last = get_client()
    return _last


def _join_assigned(assigned: str) -> None:
    # A rank belongs to the session that its group put into the environment: once joined, attach() refuses another one
    # by both names. A plain process may have inherited the name of a session that ended; it is free to join another.
    try:
        attach(assigned)
    except SessionNotFoundError:
        return
