"""A call between nodes and its answer, as messages. Errors travel as the name of their class, their text and facts."""

from __future__ import annotations

import builtins
import inspect
from dataclasses import dataclass
from typing import Any

import transferqueue.errors
from transferqueue.errors import CorruptSegmentError, TransferQueueError
from transferqueue.nodes import errors, messages

REQUEST_ID_NBYTES = 16
_VALUE, _ERROR, _RUNNING = 0, 1, 2
RUNNING = messages.encode([_RUNNING])
"""The answer to a retry while the first attempt is still being worked on."""

_TYPED: dict[str, type[TransferQueueError]] = {
    name: cls
    for module in (transferqueue.errors, errors)
    for name, cls in vars(module).items()
    if inspect.isclass(cls) and issubclass(cls, TransferQueueError)
}
# What a call with wrong arguments raises; nothing whose class would say more here than its text does.
_BUILTIN = (
    *("TypeError", "ValueError", "KeyError", "IndexError", "LookupError", "NotImplementedError", "RuntimeError"),
    *("ImportError", "OSError", "FileNotFoundError", "FileExistsError"),
)


@dataclass(frozen=True)
class Request:
    """One attempt of a call.

    Attributes:
        method: name of the handler.
        args: by name.
        request_id: 16 bytes, the same in all attempts of one call.
        left_s: seconds that the caller waits at most from now; None: no limit.
        caller: who it is, for logs and errors.
        join_s: how long an attempt waits for an earlier one that is still being worked on, before `RUNNING` is said.
    """

    method: str
    args: dict[str, Any]
    request_id: bytes
    left_s: float | None
    caller: str
    join_s: float = 0.5

    def encode(self) -> bytes:
        """Raises TypeError or ValueError for values that no message carries."""
        return messages.encode([self.method, self.args, self.request_id, self.left_s, self.caller, self.join_s])

    @classmethod
    def decode(cls, data: Any) -> Request:
        """Raises CorruptSegmentError or LayoutMismatchError."""
        match messages.decode(data):
            case [str() as method, dict() as args, bytes() as request_id, left_s, str() as caller, float() as join_s]:
                well = all(type(name) is str for name in args) and len(request_id) == REQUEST_ID_NBYTES
                if well and (left_s is None or type(left_s) is float) and len(method) <= 200 and len(caller) <= 1000:
                    return cls(method, args, request_id, left_s, caller, min(max(join_s, 0.0), 60.0))
        raise CorruptSegmentError("a call from another node is not one")


def answer_of_value(value: Any) -> bytes:
    """Raises TypeError or ValueError for values that no message carries."""
    return messages.encode([_VALUE, value])


def answer_of_error(error: BaseException) -> bytes:
    """The answer that makes the caller raise the same."""
    name, details = type(error).__name__, {}
    text = str(error)
    if isinstance(error, TransferQueueError):
        details = {key: _carried(value) for key, value in error.details.items()}
        if _TYPED.get(name) is not type(error):
            name = next(cls.__name__ for cls in type(error).__mro__ if _TYPED.get(cls.__name__) is cls)
    elif name in _BUILTIN and type(error) is getattr(builtins, name):
        text = str(error.args[0]) if error.args else ""  # a KeyError's own text is in quotes
    else:
        name, text = "TransferQueueError", f"{name}: {text}"
    return messages.encode([_ERROR, name, text.encode("utf-8", "backslashreplace").decode(), details])


def read_answer(data: Any) -> tuple[bool, Any]:
    """(whether the call is over, its value).

    Raises:
        what the handler raised. CorruptSegmentError, LayoutMismatchError: no answer, or of another version.
    """
    match messages.decode(data):
        case [0, value]:
            return True, value
        case [2]:
            return False, None
        case [1, str() as name, str() as text, dict() as details] if all(type(key) is str for key in details):
            if name in _TYPED:
                raise _TYPED[name](text, **details)
            if name in _BUILTIN:
                raise getattr(builtins, name)(text)
            raise TransferQueueError(f"{name}: {text}", **details)
    raise CorruptSegmentError("an answer from another node is not one")


def _carried(value: Any) -> Any:
    try:
        messages.encode(value)
    except (TypeError, ValueError):
        return str(value)
    return value
