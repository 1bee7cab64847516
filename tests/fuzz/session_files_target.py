"""The small files of a session directory: its description, where its configuration came from, the address of its
metrics, the sessions that were loaded into it."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.fuzz.edits import Input, edited, edits_of, require
from tests.fuzz.targets import Target
from transferqueue.errors import CorruptSegmentError, LayoutMismatchError
from transferqueue.metrics.endpoint import read_address
from transferqueue.samplers.registry import load_sampler
from transferqueue.storage.checked_json import write_checked
from transferqueue.storage.loaded_sessions import read_loaded_sessions
from transferqueue.storage.names import SessionPaths
from transferqueue.storage.origin import read_origin
from transferqueue.storage.session_dir import FORMAT_VERSION, SessionDescription, read_description

_DIRECTORY = Path(tempfile.mkdtemp(prefix="tq-fuzz-"))
atexit.register(shutil.rmtree, _DIRECTORY, ignore_errors=True)


class _Paths(SessionPaths):
    @property
    def directory(self) -> str:
        return str(_DIRECTORY)


PATHS = _Paths("fuzz", 0)
_DESCRIPTION = SessionDescription(
    "fuzz",
    1,
    "pid:[1]",
    "host",
    3,
    "/tmp/here",
    1.5,
    {"storage.size": 1024, "read.mode": "cow"},
    {"name": "SequentialSampler"},
)
FILES = [
    (PATHS.description, write_checked({"format": FORMAT_VERSION, **asdict(_DESCRIPTION)})),
    (PATHS.origin, json.dumps({"sources": {"storage.size": "default"}, "adopter_pid": 5})),
    (PATHS.metrics_endpoint, json.dumps({"endpoint": "127.0.0.1:9000", "pid": 5})),
    (PATHS.loaded_sessions, json.dumps(["one", "two"])),
]


def _checked(raw: bytes) -> bytes:
    """With the checksum of what it says, so that it is read to its end."""
    try:
        values = json.loads(raw)
        values.pop("crc32", None)
        return write_checked(values).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return raw


def run(data: bytes) -> None:
    given = Input(data)
    which = given.number() % len(FILES)
    path, text = FILES[which]
    raw = text.encode()
    while not given.empty:
        raw = edited(raw, given)
    if which == 0:
        raw = _checked(raw)
    Path(path).write_bytes(raw)
    os.chmod(path, 0o600)  # else it is not even read
    try:
        if which == 0:
            description = read_description(PATHS)
            assert description is not None
            assert description.name == "fuzz"
            assert all(type(key) is str for key in description.config)
            if "pickle" not in description.sampler:  # not opened here: it is the user's own code
                try:
                    load_sampler(description.sampler)
                except ValueError as error:
                    require("sampler" in str(error), error)
        elif which == 1:
            assert all(type(source) is str for source in read_origin(PATHS).sources.values())
        elif which == 2:
            assert read_address(PATHS) is None or type(read_address(PATHS)) is str
        else:
            assert all(type(name) is str for name in read_loaded_sessions(PATHS))
    except (CorruptSegmentError, LayoutMismatchError):
        return


def target() -> Target:
    seeds = [bytes([number]) + tail for number in range(len(FILES)) for tail in edits_of(50, seed=number)]
    return Target("session_files", run, seeds)
