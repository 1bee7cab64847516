"""One question for all processes of a node that ask a partition's home the same at the same time.

An answer is as good for a reader as its own would be if it was *asked for after* the reader began: whatever the reader
had heard of by then had happened before the home looked. So what is known already is never used, and nothing has to be
invalidated; who comes while a question is under way shares the next one. One asks (and has the place `first`), one
waits to ask next (`second`), and all who come while `second` is taken wait for what that one is told:

    reader     began = now;  `second` is taken by somebody else;  sleeps until there is an answer with told > began
    next one   holds `second`;  gets `first`;  lets go of `second`;  told = now;  asks;  writes (told, answer)

A reader that found `second` taken did so before it was let go of, so its `began` is before that `told`: one machine has
one monotonic clock. A reader compares the two itself, so that an answer which is there in some other way (to another
question, in the same place of the file; by somebody who died in between) is not taken for its own.

*Who brings the rows goes before who waits for them.* A turn keeps `first` until its rows are on their way, or need not
be brought: the next question is asked while bytes come and nobody waits for a processor. Those who wait for its answer
sleep on the word of `PAYLOAD`, since they want the rows and not the answer: the publication of what is brought wakes
them, and where nothing is brought the end of the turn does. The word is read before the answer is looked for, and
bumped after it was written.

*Nobody is waited for in vain.* The places are locks of the kernel: who dies lets go of them. A sleep lasts for
`_SLICE_S`, after `_PATIENCE_S` (a stopped process; a home that does not answer) everybody asks by itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from transferqueue.nodes.names import HIDDEN, PAYLOAD
from transferqueue.nodes.range_locks import close_locks, open_locks, try_lock, unlock

if TYPE_CHECKING:
    from transferqueue._native import Store

_SLOTS = 32
_SLOT_NBYTES = 64 << 10
# Of an answer: to what, when it was asked for, its length, a digest of all of it: two may write to one place at a time.
_HEADER = struct.Struct("<16sqI16s")
_TOO_LONG = 0xFFFFFFFF
_FIRST_READ_NBYTES = 4 << 10  # all of most answers: rows in a row are a few bytes
_PATIENCE_S = 0.5
_SLICE_S = 0.05
# Of one process, so that those of asyncio do not take all its threads, of which whoever they wait for needs one.
_MOST_WAITING = 16
DESCRIBE = "describe"
"""The argument of a look that asks for a description of the rows: see `Group.described`."""
# Futex words go by any name, whether or not there is a partition of it.
_NEXT = HIDDEN + "next look "
_pack = msgspec.msgpack.Encoder(enc_hook=lambda value: value.tobytes() if isinstance(value, np.ndarray) else str(value))


class SharedLooks:
    """Of one process. Thread-safe.

    Args:
        store: of the node.
        path: a file of the session directory, made when it is not there.

    Attributes:
        waiting: those who wait of this process.
    """

    def __init__(self, store: Store, path: str) -> None:
        self.store = store
        self.path = path
        self.waiting: set[int] = set()

    def turn(self) -> Turn:
        """One reader's: `Turn.ask`, then its rows, then the end of the ``with``."""
        return Turn(self)


class Turn:
    """Of one call, used by one thread at a time. May be used again once it is over.

    Attributes:
        shared: the last answer was another's, or is to be that of others.
    """

    def __init__(self, looks: SharedLooks) -> None:
        self._looks = looks
        self._store = looks.store
        self._fd = -1
        self._first = 0
        self._word = ""
        self._queued = False
        self.shared = False

    def ask(self, ordinal: int, args: Mapping[str, Any], until_s: float, look: Callable[[bool], bytes]) -> bytes:
        """What `look`, called here or in another process with the same arguments, gave after this call began.

        Args:
            look: is told whether the rows are to be described with the answer, which they are for one who asks alone:
                who waits for another's pull does not pull.
        """
        self.over()
        self.shared = False
        if len(self._looks.waiting) >= _MOST_WAITING:
            return look(False)
        began_ns = time.monotonic_ns()
        asked = [ordinal, {name: value for name, value in args.items() if name != DESCRIBE}]
        key = hashlib.blake2b(_pack.encode(asked), digest_size=16).digest()
        self._first = int.from_bytes(key[:8], "little") >> 2 & ~1
        self._word = _NEXT + key.hex()
        self._fd = open_locks(self._looks.path)
        if not try_lock(self._fd, self._first, 1):
            self.shared = True
            self._looks.waiting.add(id(self))
            try:
                found = self._awaited(key, began_ns, until_s)
            finally:
                self._looks.waiting.discard(id(self))
            if found is not None:
                self._end()
                return found or look(False)  # empty: it is too long for its place, and all ask at once
            self._queued = True
        told_ns = time.monotonic_ns()
        answer = look(not self._queued)
        if self._queued:  # else nobody waits for this one
            with contextlib.suppress(OSError):  # no room in the file: who waits asks by itself
                _write(self._fd, key, told_ns, answer)
        return answer

    def let_next(self) -> None:
        """The rows are on their way, whoever brings them: the next one may ask. Idempotent."""
        if self._first and self._fd >= 0:
            unlock(self._fd, self._first, 1)
            self._store.wake(self._word)
            self._first = 0

    def over(self, *, woken: bool = False) -> None:
        """The rows are there, or will not be. Idempotent.

        Args:
            woken: they came since the answer did, which has woken those who wait for it.
        """
        if self._fd >= 0:
            queued = self._queued
            self._end()
            if queued and not woken:
                self._store.wake(PAYLOAD)

    def _end(self) -> None:
        fd, self._fd, self._queued = self._fd, -1, False
        close_locks(fd)
        if self._first:
            self._store.wake(self._word)

    def _awaited(self, key: bytes, began_ns: int, until_s: float) -> bytes | None:
        """Somebody's answer, empty if it is too long; None: this one is to ask, and has the first place or waited for
        long enough."""
        give_up_s = min(until_s, time.monotonic() + _PATIENCE_S)
        second = False
        while True:
            word = self._word if second else PAYLOAD
            seen = self._store.wake_word(word)
            found = _read(self._fd, key, began_ns)
            if found is not None:
                return found
            if try_lock(self._fd, self._first, 1):
                if second:
                    unlock(self._fd, self._first + 1, 1)
                return None
            if not second and try_lock(self._fd, self._first + 1, 1):
                second = True
                continue
            left_s = give_up_s - time.monotonic()
            if left_s <= 0:
                return None
            self._store.wait_word(word, seen, min(left_s, _SLICE_S))

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.over()


def _place(key: bytes) -> int:
    return key[-1] % _SLOTS * _SLOT_NBYTES


def _digest(key: bytes, told_ns: int, body: bytes) -> bytes:
    return hashlib.blake2b(_HEADER.pack(key, told_ns, len(body), bytes(16)) + body, digest_size=16).digest()


def _write(fd: int, key: bytes, told_ns: int, answer: bytes) -> None:
    long = len(answer) > _SLOT_NBYTES - _HEADER.size
    body = b"" if long else answer
    header = _HEADER.pack(key, told_ns, _TOO_LONG if long else len(body), _digest(key, told_ns, body))
    os.pwrite(fd, header + body, _place(key))


def _read(fd: int, key: bytes, began_ns: int) -> bytes | None:
    """The answer to what was asked after `began_ns`, empty if it was too long; None: there is none."""
    begin = os.pread(fd, _FIRST_READ_NBYTES, _place(key))
    if len(begin) < _HEADER.size:
        return None
    whose, told_ns, nbytes, digest = _HEADER.unpack_from(begin)
    if whose != key or told_ns <= began_ns:
        return None
    nbytes = 0 if nbytes == _TOO_LONG else min(nbytes, _SLOT_NBYTES)
    body = begin[_HEADER.size : _HEADER.size + nbytes]
    if len(body) < nbytes:
        body += os.pread(fd, nbytes - len(body), _place(key) + _HEADER.size + len(body))
    return body if digest == _digest(key, told_ns, body) else None
