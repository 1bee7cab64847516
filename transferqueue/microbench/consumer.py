"""A second process that answers calls over a pipe: producer and consumer never share an address space."""

from __future__ import annotations

import contextlib
import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

# Imported once, by the server that consumers are forked from: a fresh interpreter spends seconds on torch.
_PRELOADED = ["torch", "tensordict", "transferqueue.microbench.workload"]


def _serve(pipe: Connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        target = make(*arguments)
    except Exception:
        pipe.send((False, traceback.format_exc()))
        return
    pipe.send((True, None))
    try:
        while (call := pipe.recv()) is not None:
            name, args = call
            try:
                answer = (True, getattr(target, name)(*args))
            except Exception:
                answer = (False, traceback.format_exc())
            pipe.send(answer)
    except (EOFError, BrokenPipeError):
        pass  # whoever measures is gone
    finally:
        if hasattr(target, "close"):
            target.close()


class Consumer:
    """`make(*arguments)` runs in a process of its own; `call(name, *args)` runs a method there and returns its answer.

    By the default `start_method` it is forked from a server that has no session, no mapping and no thread: fresh in
    everything but its imports. With "spawn" it is a new interpreter.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any, start_method: str = "forkserver") -> None:
        context = multiprocessing.get_context(start_method)
        if start_method == "forkserver":
            context.set_forkserver_preload(_PRELOADED)
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, make, arguments), daemon=True)  # type: ignore[attr-defined]
        self._process.start()
        there.close()
        self.finish()

    @property
    def pid(self) -> int:
        """Of the process."""
        return int(self._process.pid or 0)

    def call(self, name: str, *args: Any) -> Any:
        """`start` and `finish`."""
        self.start(name, *args)
        return self.finish()

    def start(self, name: str, *args: Any) -> None:
        """Has the method called there; `finish` waits for its answer."""
        self._pipe.send((name, args))

    def finish(self) -> Any:
        """What the method returned; raises RuntimeError with the trace of the other side where it raised."""
        try:
            ok, value = self._pipe.recv()
        except EOFError:
            raise RuntimeError(f"the consumer, process {self.pid}, ended without an answer") from None
        if not ok:
            raise RuntimeError(f"the consumer failed:\n{value}")
        return value

    def close(self) -> None:
        """Ends the process; idempotent."""
        if self._pipe.closed:
            return
        with contextlib.suppress(OSError):  # it is gone already
            self._pipe.send(None)
        self._process.join(30)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()
        self._pipe.close()
