"""Loggers of this package, all below ``transferqueue``.

A library leaves handlers to its program. Where the program set none up, one line per record goes to stderr, so that
a Ray worker or a plain script shows what the bridge and the service say without further set-up.
"""

from __future__ import annotations

import logging
import sys

from transferqueue.printable import printable

ROOT_NAME = "transferqueue"
_FORMAT = "%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), lines=True)


class _StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to whatever ``sys.stderr`` is at the time: test runners and Ray replace it after start-up."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(_Formatter(_FORMAT))

    @property
    def stream(self):  # type: ignore[no-untyped-def]
        return sys.stderr

    def handle(self, record: logging.LogRecord) -> bool:
        # Decided per record: a program may configure logging after it called init().
        return False if logging.getLogger().handlers else bool(super().handle(record))


def get_logger(name: str) -> logging.Logger:
    """The logger ``transferqueue.<name>`` (a name that already starts so is taken as it is)."""
    if name == ROOT_NAME or name.startswith(ROOT_NAME + "."):
        return logging.getLogger(name)
    return logging.getLogger(f"{ROOT_NAME}.{name}")


def configure(level: str | int) -> None:
    """Sets the level of all our loggers and makes sure that they are heard. Idempotent."""
    root = logging.getLogger(ROOT_NAME)
    root.setLevel(level)
    if not any(isinstance(handler, _StderrHandler) for handler in root.handlers):
        root.addHandler(_StderrHandler())
