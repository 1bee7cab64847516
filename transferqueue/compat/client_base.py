"""What the calls of the compatible client stand on: the session, the native client of this process, a loop thread."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from transferqueue.compat.failures import request
from transferqueue.errors import ClosedError
from transferqueue.session import Session, attach, current_session

if TYPE_CHECKING:
    from transferqueue._native import Store
    from transferqueue.aio import AsyncRunner
    from transferqueue.client import TransferQueueClient as NativeClient

R = TypeVar("R")


class ClientBase:
    """A client by name, on this process's session.

    Args:
        client_id: for messages.
        controller_info: what ``config.controller.zmq_info`` holds: a mapping with the entry ``session``, or the
            session's name. None: the session that this process is in.

    Raises:
        TypeError: `controller_info` is none of these.
        SessionNotFoundError: there is no such session, or this process is in another one.
    """

    def __init__(self, client_id: str, controller_info: Any = None) -> None:
        self.client_id = client_id
        name = session_name(controller_info)
        self._session: Session = current_session() if name is None else attach(name)
        self._ended = False
        self._loop_thread: _LoopThread | None = None
        self._loop_guard = threading.Lock()

    def initialize_storage_manager(self, manager_type: str, config: Any) -> None:
        """Nothing to do: whoever is attached to the session reads and writes its memory."""

    @property
    def session(self) -> str:
        """Name of the session."""
        return self._session.name

    @property
    def usable(self) -> bool:
        """Whether neither the client nor its session was closed, by anybody."""
        return not (self._ended or self._session.closed or self._session.attachment.store.ended)

    def close(self) -> None:
        """Ends the client; the session stays. Idempotent."""
        self._ended = True
        thread, self._loop_thread = self._loop_thread, None
        if thread is not None:
            thread.close()

    def __reduce__(self) -> tuple[Any, ...]:
        # In another process: a client of the same session there.
        return type(self), (self.client_id, {"session": self.session})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.client_id!r}, session={self.session!r})"

    def _run_coroutine(self, coroutine: Coroutine[Any, Any, R]) -> R:
        """Runs a coroutine on the client's own loop, in a thread of its own, and waits for it."""
        if self._ended:
            coroutine.close()
            raise self._closed_error()
        with self._loop_guard:
            thread = self._loop_thread
            if thread is None or not thread.ours:
                thread = self._loop_thread = _LoopThread(self.client_id)
        return thread.run(coroutine)

    def _request(self, name: str, *unchanged: type[Exception]) -> AbstractContextManager[None]:
        return request(self.client_id, name, *unchanged)

    @property
    def _native(self) -> NativeClient:
        if self._ended:
            raise self._closed_error()
        return self._session.client

    # What `blocking` and `asynchronous` ask of a client.

    @property
    def _store(self) -> Store:
        return self._session.attachment.store

    @property
    def _async_runner(self) -> AsyncRunner:
        return self._native._async_runner

    def _closed_error(self) -> ClosedError:
        return ClosedError(f"client {self.client_id!r} was closed; call init() and get_client() again")


def session_name(controller_info: Any) -> str | None:
    """The session that ``config.controller.zmq_info`` names; None for None.

    Raises:
        TypeError: something that names none.
    """
    if controller_info is None or isinstance(controller_info, str):
        return controller_info
    name = controller_info.get("session") if isinstance(controller_info, Mapping) else None
    if not isinstance(name, str):
        raise TypeError(
            "controller_info must be what init() wrote to config.controller.zmq_info, a mapping with the entry "
            f"'session'; not {controller_info!r}"[:400]
        )
    return name


class _LoopThread:
    """An event loop that runs in a thread until `close`."""

    def __init__(self, name: str) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"{name}-loop", daemon=True)
        self._thread.start()

    @property
    def ours(self) -> bool:
        """Whether the thread lives in this process: threads do not survive a fork."""
        return self._pid == os.getpid()

    def run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a coroutine on the client's loop cannot wait for another one there: await it")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        if not self.ours:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()
            self._loop.close()
