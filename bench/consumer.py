"""A second process that answers calls over a pipe: producer and consumer never share an address space."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


def _serve(pipe: Connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        target = make(*arguments)
    except Exception:
        pipe.send((False, traceback.format_exc()))
        return
    pipe.send((True, None))
    while True:
        call = pipe.recv()
        if call is None:
            break
        name, args = call
        try:
            pipe.send((True, getattr(target, name)(*args)))
        except Exception:
            pipe.send((False, traceback.format_exc()))
    if hasattr(target, "close"):
        target.close()


class Consumer:
    """`make(*arguments)` runs in a process of its own; `call(name, *args)` runs a method there and returns its answer.

    `start_method`: "spawn", or "forkserver" where many are started: they share what they import.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any, start_method: str = "spawn") -> None:
        context = multiprocessing.get_context(start_method)
        self._pipe, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, make, arguments), daemon=True)
        self._process.start()
        there.close()
        self._answer()

    @property
    def pid(self) -> int:
        return int(self._process.pid or 0)

    def _answer(self) -> Any:
        ok, value = self._pipe.recv()
        if not ok:
            raise RuntimeError(f"the consumer failed:\n{value}")
        return value

    def call(self, name: str, *args: Any) -> Any:
        self.start(name, *args)
        return self.finish()

    def start(self, name: str, *args: Any) -> None:
        self._pipe.send((name, args))

    def finish(self) -> Any:
        return self._answer()

    def close(self) -> None:
        self._pipe.send(None)
        self._process.join(30)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()
        self._pipe.close()
