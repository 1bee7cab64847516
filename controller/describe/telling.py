"""Passing on what a future raises."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from transferqueue.errors import TransferTimeoutError


@contextlib.contextmanager
def telling(on_error: Callable[[BaseException], object] | None) -> Iterator[None]:
    """Tells `on_error` what is raised inside, which goes on; not that something has not answered yet."""
    try:
        yield
    except TransferTimeoutError:
        raise
    except BaseException as error:
        if on_error is not None:
            on_error(error)
        raise
