"""What a rank's error says, as its programmer wants to read it."""

from __future__ import annotations

import concurrent.futures
import re
from collections.abc import Sequence
from pathlib import Path

import transferqueue.workers

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_HEADER = re.compile(r"ray::\S+\(\) \(pid=\d+.*\)")
_MARKERS = re.compile(r"[ ~^]+")
_FILE = re.compile(r'  File "([^"]+)", line ')
_OURS = tuple(
    str(Path(module).parent) for module in (transferqueue.workers.__file__, __file__, concurrent.futures.__file__)
)


def plain_text(error: BaseException) -> str:
    """What an error says, without the colours that Ray puts in."""
    return _COLOUR.sub("", str(error)).strip()


def one_line(cause: BaseException) -> str:
    """Class and first line of an error; of a `KeyError` its text rather than the quoted and escaped form of it."""
    plain = type(cause).__str__ is KeyError.__str__ and len(cause.args) == 1 and isinstance(cause.args[0], str)
    text = (cause.args[0] if plain else str(cause)).strip().split("\n", 1)[0]
    return f"{type(cause).__name__}: {text}" if text else type(cause).__name__


def traceback_text(error: BaseException, cause: BaseException) -> str:
    """The traceback in a Ray task error, from the user's method on.

    Ray cuts its own frames and leaves the lines that marked a place in them: those go, with all of their kind, and so
    do the frames of the bridge and of the group, unless they are all there is.
    """
    lines = [line for line in plain_text(error).split("\n") if not _MARKERS.fullmatch(line)]
    lines = _of_the_user(lines)
    text = "\n".join("Traceback on the rank:" if _HEADER.fullmatch(line) else line for line in lines)
    if isinstance(cause, KeyError):
        text = text.replace(f"{type(cause).__name__}: {cause}", one_line(cause))
    return text


def local_traceback_text(formatted: Sequence[str]) -> str:
    """The same for an error of this process, from what `traceback.format_exception` gives."""
    lines = "".join(formatted).rstrip("\n").split("\n")
    return "\n".join(_of_the_user([line for line in lines if not _MARKERS.fullmatch(line)]))


def _of_the_user(lines: list[str]) -> list[str]:
    """Without the frames of the bridge, of the group and of the thread pool, unless they are all there is."""
    if any(found and not found.group(1).startswith(_OURS) for found in map(_FILE.match, lines)):
        return _without_frames_of_ours(lines)
    return lines


def _without_frames_of_ours(lines: list[str]) -> list[str]:
    kept = []
    ours = False
    for line in lines:
        found = _FILE.match(line)
        if found:
            ours = found.group(1).startswith(_OURS)
        elif not line.startswith("    "):
            ours = False
        if not ours:
            kept.append(line)
    return kept
