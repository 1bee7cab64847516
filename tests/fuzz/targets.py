"""What is fuzzed: every decoder of bytes that Python reads from the network, the index, a block or a file.

A target is called with one input and returns; an error that is not one of those that damage may end in gets out.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple


class Target(NamedTuple):
    """One decoder, or a family of them.

    Attributes:
        run: decodes one input; raises when something went wrong.
        seeds: inputs to begin with.
        close: gives up what the target holds, sessions above all; it can be set up again.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: list[bytes]
    close: Callable[[], None] = lambda: None


# Name -> module that has `target()`; imported when it is wanted, as most import torch.
TARGETS = {
    "metadata": "tests.fuzz.metadata_target",
    "frames": "tests.fuzz.frames_target",
    "messages": "tests.fuzz.messages_target",
    "tags": "tests.fuzz.tags_target",
    "schema": "tests.fuzz.schema_target",
    "session_files": "tests.fuzz.session_files_target",
    "config": "tests.fuzz.config_target",
    "manifest": "tests.fuzz.manifest_target",
    "columns": "tests.fuzz.columns_target",
    "checkpoint": "tests.fuzz.checkpoint_target",
    "checkpoint_half": "tests.fuzz.checkpoint_half_target",
}


def target(name: str) -> Target:
    """The target of that name, set up."""
    made: Target = import_module(TARGETS[name]).target()
    return made
