"""The client through which a rank reads and writes the rows that metadata names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import transferqueue as tq
from transferqueue.errors import SessionNotFoundError
from transferqueue.session import attach

if TYPE_CHECKING:
    from transferqueue.client import TransferQueueClient

SESSION_VARIABLE = "TRANSFERQUEUE_SESSION"


def client_for(metadata: Any) -> TransferQueueClient:
    """This process's client, attached to the session of `metadata` (a BatchMeta or KVBatchMeta) on first use.

    Raises `SessionNotFoundError` naming both sessions when this process belongs to another one, by an earlier call or
    by its environment, and when the metadata names none and the environment neither.
    """
    assigned = os.environ.get(SESSION_VARIABLE)
    wanted = metadata.session or assigned
    if wanted is None:
        raise SessionNotFoundError(
            f"the {type(metadata).__name__} names no session and {SESSION_VARIABLE} is not set: pass metadata that a "
            "client made, or call transferqueue.init(session=...) in this process"
        )
    if assigned is not None and assigned != wanted:
        _join_assigned(assigned)
    attach(wanted)
    return tq.get_client()


def _join_assigned(assigned: str) -> None:
    # A rank belongs to the session that its group put into the environment: once joined, attach() refuses another one
    # by both names. A plain process may have inherited the name of a session that ended; it is free to join another.
    try:
        attach(assigned)
    except SessionNotFoundError:
        return
