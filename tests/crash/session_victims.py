"""Processes that die while a session is made, joined, left or removed, counted in steps that others can see."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

import posix_ipc

import transferqueue as tq
from tests.support.versioned_rows import rows, versions_of
from transferqueue import _native


def _seen_outside(event: str, arguments: tuple[object, ...]) -> bool:
    """Whatever changes or looks at a name in shared memory, or at a lock."""
    if event.startswith(("step.", "fcntl.", "shutil.")):
        return True
    return event.startswith(("open", "os.")) and any("/dev/shm" in str(argument) for argument in arguments)


def die_at_step(number: int) -> Callable[[], None]:
    """Kills this process at its `number`-th step from the call of the returned function on."""
    left = number
    counting = False

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if not counting or not _seen_outside(event, arguments):
            return
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    def audited(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            sys.audit(f"step.{name}")
            made = function(*arguments, **options)
            sys.audit(f"step.{name} done")
            return made

        return call

    # Functions of native modules raise no audit events of their own.
    posix_ipc.SharedMemory = audited("segment", posix_ipc.SharedMemory)
    posix_ipc.unlink_shared_memory = audited("unlink", posix_ipc.unlink_shared_memory)
    _native.Store.format = staticmethod(audited("format", _native.Store.format))
    sys.addaudithook(hook)

    def start() -> None:
        nonlocal counting
        counting = True

    return start


def create(pipe: Connection, name: str, step: int, directory: str | None) -> None:
    start = die_at_step(step)
    start()
    tq.init(session=name, **{"storage.size": "8MiB", "storage.dir": directory})
    pipe.send("through")


def end(pipe: Connection, name: str, step: int) -> None:
    """The creator closes the session, which ends it for everybody."""
    start = die_at_step(step)
    session = tq.init(session=name, **{"storage.size": "8MiB"})
    session.client.put(rows([1], 1), partition_id="p")
    pipe.send("ready")
    pipe.recv()
    start()
    session.close()
    pipe.send("through")


def join_and_read(pipe: Connection, name: str) -> None:
    """Says whether the row of `end` is there or the session ended, then leaves."""
    session = tq.init(session=name)
    # The creator's service would be taken over otherwise, which is another story.
    session.service.stop()
    pipe.send("joined")
    pipe.recv()
    try:
        meta = session.client.get_meta(["x", "r", "s", "n"], 0, "p", mode="force_fetch")
        assert versions_of(session.client.get_data(meta)) == [(1, 1)]
        pipe.send("row")
    except tq.SessionNotFoundError:
        pipe.send("ended")
    tq.close()


def leave_last(pipe: Connection, name: str, step: int) -> None:
    """The last process to leave, which removes the session."""
    start = die_at_step(step)
    session = tq.init(session=name)
    pipe.send("ready")
    pipe.recv()
    start()
    session.attachment.detach()
    pipe.send("through")


def hold(pipe: Connection, name: str, directory: str | None = None) -> None:
    """Attached, with rows of its own, until killed or told to go."""
    session = tq.init(session=name, **{"storage.size": "8MiB", "storage.dir": directory})
    session.client.kv_batch_put([f"k{os.getpid()}"], "held", rows([os.getpid()], 1))
    pipe.send(session.creator)
    pipe.recv()
    session.close()


def clean(pipe: Connection, step: int) -> None:
    """Removes dead sessions, and dies at it."""
    from transferqueue.storage.cleaning import remove_dead_sessions

    start = die_at_step(step)
    start()
    remove_dead_sessions()
    pipe.send("through")
