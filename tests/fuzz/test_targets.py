"""The short form of the fuzzers of Python decoders: seeds, inputs that once failed, and mutations by hypothesis."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, target

INPUTS = Path(__file__).parent / "inputs"
# Those that put, load or write files cost milliseconds an input.
EXAMPLES = {"columns": 150, "checkpoint": 40, "checkpoint_half": 40, "session_files": 80}


@pytest.mark.parametrize("name", TARGETS)
def test_damage_ends_in_typed_errors(name: str) -> None:
    chosen = target(name)
    for seed in chosen.seeds[:: max(1, len(chosen.seeds) // 60)]:
        chosen.run(seed)
    for kept in sorted((INPUTS / name).glob("*")):
        chosen.run(kept.read_bytes())

    @settings(
        max_examples=EXAMPLES.get(name, 200), deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    @given(st.sampled_from(chosen.seeds), st.binary(max_size=48), st.integers(0, 12))
    def run(seed: bytes, tail: bytes, cut: int) -> None:
        chosen.run(seed[:cut] + tail)

    try:
        run()
    finally:
        chosen.close()
