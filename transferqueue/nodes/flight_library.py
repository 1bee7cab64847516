"""pyarrow's Flight, imported when the first connection or server is made; and what of it a forked child inherits."""

from __future__ import annotations

import ctypes
import importlib
import os
import weakref
from functools import cache
from typing import Any, Protocol

_used_in: list[int] = []


class Holder(Protocol):
    """Has objects of the library that a forked child must not destroy."""

    def forked(self) -> None:
        """Called in the child."""


_holders: weakref.WeakSet[Any] = weakref.WeakSet()


@cache
def flight() -> Any:
    """The module.

    Raises:
        ImportError: it is not installed; says what to install.
    """
    try:
        return importlib.import_module("pyarrow.flight")
    except ImportError as error:
        raise ImportError(
            "more than one node needs pyarrow with Flight, which is not installed here: "
            "pip install 'transferqueue-shm[cluster]'",
            name="pyarrow.flight",
        ) from error


def note_used(holder: Holder) -> None:
    """To be called before `holder` makes its first connection or server: the library has threads from then on."""
    if not _used_in:
        _used_in.append(os.getpid())
    _holders.add(holder)


def is_broken_by_fork() -> bool:
    """Whether this process was forked from one that used the library.

    Its threads are not here and its locks are as they were, so that a call would wait for ever, deadline or not.
    """
    return bool(_used_in) and _used_in[0] != os.getpid()


def keep_for_ever(thing: Any) -> None:
    """An object of the library whose destructor would wait for threads that cannot end: those of the parent in a forked
    child, or of a server, which want the interpreter's lock. It never runs, not even when the interpreter ends."""
    for reference in weakref.getweakrefs(thing):
        if isinstance(reference.__callback__, weakref.finalize):  # the library's own way to stop a server at exit
            reference.__callback__.detach()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _forked() -> None:
    for holder in list(_holders):
        holder.forked()


os.register_at_fork(after_in_child=_forked)
