"""`metadata.json` of a checkpoint: damaged bytes, and damaged values under a checksum that is right."""

from __future__ import annotations

import copy
import json
from typing import Any

from tests.fuzz.edits import Input, edited, edits_of, require
from tests.fuzz.targets import Target
from transferqueue.checkpoint import manifest as manifests
from transferqueue.errors import CorruptCheckpointError, LayoutMismatchError

_FACTS = manifests.FileFacts(100, "0" * 32)
WHOLE = manifests.Manifest(
    manifests.FORMAT,
    manifests.FORMAT_VERSION,
    "0.1",
    "s",
    ["earlier"],
    "2020-01-01T00:00:00+00:00",
    True,
    {"step": 3, "nested": [1, 2.5, None]},
    10,
    8,
    4096,
    dict.fromkeys(manifests.FILES, _FACTS),
)
_ODD: list[Any] = [None, True, -1, 0, 1 << 70, 1.5, "", "x", [], [1], {}, {"a": 1}, float("nan"), "\ud800"]


def with_checksum(plain: dict[str, Any]) -> bytes:
    plain = {name: value for name, value in plain.items() if name != "checksum"}
    return json.dumps({**plain, "checksum": manifests._checksum(plain)}).encode()


def run(data: bytes) -> None:
    given = Input(data)
    raw = WHOLE.encode()
    if given.number() % 2:
        plain = json.loads(raw)
        while not given.empty:
            name = list(plain)[given.below(len(plain))]
            at = plain["files"] if name == "files" and given.number() % 2 and type(plain["files"]) is dict else plain
            if at is not plain and at:
                name = list(at)[given.below(len(at))]
            at[name] = copy.deepcopy(_ODD[given.below(len(_ODD))])
        raw = with_checksum(plain)
    else:
        while not given.empty:
            raw = edited(raw, given)
    try:
        manifest = manifests.parse_manifest(raw, "metadata.json", manifests.FILES)
    except (CorruptCheckpointError, LayoutMismatchError) as error:
        if isinstance(error, LayoutMismatchError):
            require(repr(error.found) in str(error) and str(error.expected) in str(error), error)
        return
    assert sorted(manifest.files) == sorted(manifests.FILES)


def target() -> Target:
    return Target("manifest", run, edits_of(150))
