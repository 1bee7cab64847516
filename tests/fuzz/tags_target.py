"""Tags of rows, as the index and checkpoints hold them. Pickles among them stay closed."""

from __future__ import annotations

from tests.fuzz.edits import Input, edited, edits_of, require
from tests.fuzz.targets import Target
from transferqueue.errors import CorruptSegmentError
from transferqueue.tag_maps import TagDecoder, encode_tags

MAPS = [
    encode_tags({"name": "value", "other": [1, 2, 3], "third": 2.5}),
    encode_tags({"a": (1, 2), "b": {"c": [None, True]}, "ä": 1 << 70}),
    encode_tags({}),
]


def run(data: bytes) -> None:
    given = Input(data)
    blob = MAPS[given.number() % len(MAPS)]
    while not given.empty:
        blob = edited(blob, given)
    try:
        tags = TagDecoder(allow_pickle=False).decode(blob)
    except CorruptSegmentError:
        return
    except ValueError as error:
        require("allow_pickle" in str(error), error)
        return
    assert all(type(name) is str for name in tags)


def target() -> Target:
    seeds = [bytes([number]) + tail for number in range(len(MAPS)) for tail in edits_of(60, seed=number)]
    return Target("tags", run, seeds)
