"""What a program of TransferQueue 0.1.11 sees when a request fails: RuntimeError with the original type and message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def request(client_id: str, name: str, *unchanged: type[Exception]) -> Iterator[None]:
    """Errors of the block, those of the types `unchanged` excepted, become RuntimeError.

    Raises:
        RuntimeError: ``[client]: Error in name: ValueError: message``; the error itself is its cause.
    """
    try:
        yield
    except unchanged:
        raise
    except Exception as error:
        raise RuntimeError(f"[{client_id}]: Error in {name}: {type(error).__name__}: {error}") from error
