"""What the system refuses a process, as errors of this package that name the limit in the way."""

from __future__ import annotations

import contextlib
import errno
import resource
import signal
from collections.abc import Iterator

from transferqueue.errors import MemoryRefusedError, SystemRefusedError, TransferQueueError

# Which limit of a process makes the system answer so, and how a shell calls it.
_LIMITS = {
    errno.EMFILE: (("RLIMIT_NOFILE", "ulimit -n"),),
    errno.EFBIG: (("RLIMIT_FSIZE", "ulimit -f"),),
    errno.ENOMEM: (("RLIMIT_AS", "ulimit -v"), ("RLIMIT_DATA", "ulimit -d")),
}
_OTHERS = {
    errno.ENFILE: "the machine has no descriptor left (fs.file-max)",
    errno.EROFS: "this process may not write there: every process of a session does",
}


def refusal(number: int, message: str) -> SystemRefusedError:
    """The error for what the system refused with `number`; `message` says what was asked for."""
    cls = MemoryRefusedError if number == errno.ENOMEM else SystemRefusedError
    for name, command in _LIMITS.get(number, ()):
        value, _ = resource.getrlimit(getattr(resource, name))
        if value != resource.RLIM_INFINITY:
            message = f"{message}; {name} of this process is {value} ({command})"
            return cls(message, errno=number, limit=name, limit_value=value)
    if number in _OTHERS:
        message = f"{message}; {_OTHERS[number]}"
    return cls(message, errno=number)


@contextlib.contextmanager
def _without_file_size_signal() -> Iterator[None]:
    """A file that would grow beyond RLIMIT_FSIZE is an error, also in a host of Python that leaves SIGXFSZ as it is."""
    value, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if value == resource.RLIM_INFINITY or signal.SIGXFSZ in signal.sigpending():
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGXFSZ})
    try:
        yield
    finally:
        signal.sigtimedwait({signal.SIGXFSZ}, 0)  # this thread's own, if there was one
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def typed_refusals(doing: str) -> Iterator[None]:
    """Errors of the system that are refusals are raised as `SystemRefusedError`, with what was being done.

    Raises:
        SystemRefusedError: in their place. Other errors pass.
    """
    try:
        with _without_file_size_signal():
            yield
    except TransferQueueError:
        raise
    except MemoryError as error:
        raise refusal(errno.ENOMEM, f"{doing}: no memory for it") from error
    except OSError as error:
        if error.errno in _LIMITS or error.errno in _OTHERS:
            raise refusal(error.errno, f"{doing}: {error}") from error
        raise
