"""Rows without their fields, in one archive: its bytes damaged, or its members under checksums that are right."""

from __future__ import annotations

import io
import json
import zipfile
from functools import cache

from tests.fuzz.checkpoint_target import Place
from tests.fuzz.edits import Input, edited, edits_of
from tests.fuzz.manifest_target import with_checksum
from tests.fuzz.targets import Target
from transferqueue.checkpoint.halves import load_rows, save_rows
from transferqueue.checkpoint.libraries import new_checksum
from transferqueue.checkpoint.manifest import MANIFEST
from transferqueue.errors import CorruptSegmentError, LayoutMismatchError, PickleNotAllowedError, StorageFullError


class _Half(Place):
    def __init__(self) -> None:
        super().__init__()
        self.path = self.directory / "rows"
        save_rows(self.store, self.path, session="fuzz")
        self.whole = self.path.read_bytes()
        with zipfile.ZipFile(io.BytesIO(self.whole)) as archive:
            self.members = {name: archive.read(name) for name in archive.namelist()}
        self.tables = [name for name in self.members if name != MANIFEST]


@cache
def place() -> _Half:
    return _Half()


def close() -> None:
    place().close()
    place.cache_clear()


def _with_damaged_member(given: Input) -> bytes:
    members = dict(place().members)
    name = place().tables[given.number() % len(place().tables)]
    for _ in range(1 + given.number() % 3):
        members[name] = edited(members[name], given)
    checksum = new_checksum()
    checksum.update(members[name])
    manifest = json.loads(members[MANIFEST])
    manifest["files"][name] = {"nbytes": len(members[name]), "xxh3_128": checksum.hexdigest()}
    members[MANIFEST] = with_checksum(manifest)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    return made.getvalue()


def run(data: bytes) -> None:
    given, held = Input(data), place()
    if given.number() % 2:
        raw = _with_damaged_member(given)
    else:
        raw = held.whole
        while not given.empty:
            raw = edited(raw, given)
    held.path.write_bytes(raw)
    try:
        load_rows(held.store, held.path, allow_pickle=False)
        held.look()
    except (CorruptSegmentError, LayoutMismatchError, PickleNotAllowedError, StorageFullError):
        pass
    finally:
        held.store.reclaim()


def target() -> Target:
    seeds = [
        *(bytes([0]) + tail for tail in edits_of(40)),
        *(bytes([1, number, 0]) + tail for number in range(len(place().tables)) for tail in edits_of(12, seed=number)),
    ]
    return Target("checkpoint_half", run, seeds, close)
