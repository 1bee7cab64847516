"""Values of the configuration as text: from the environment, or from whoever fills in a form."""

from __future__ import annotations

from tests.fuzz.edits import Input, edits_of, require
from tests.fuzz.targets import Target
from transferqueue.config import build_config, known_keys

TEXTS = ["", "0", "1", "-1", "true", "64MiB", "1.5GiB", "1e9", "nan", "inf", "cow", "INFO", "/tmp", "SequentialSampler"]


def run(data: bytes) -> None:
    given = Input(data)
    keys = known_keys()
    values = {}
    for _ in range(1 + given.number() % 4):
        key = keys[given.below(len(keys))]
        text = TEXTS[given.below(len(TEXTS))] if given.number() % 2 else ""
        values[key] = text + given.take(given.number() % 12).decode("utf-8", "surrogateescape")
    try:
        flat = build_config(values).to_flat()
    except (ValueError, TypeError) as error:
        require(any(key in str(error) for key in values), error)
        return
    assert set(flat) >= set(values)


def target() -> Target:
    return Target("config", run, edits_of(200))
