"""Each case of section F has a test that carries its number, here or beside the module that it is about."""

from __future__ import annotations

import re
from pathlib import Path

DISPATCH_AND_COLLECT = {96, 98, 100, 103, 104, 105, 106, 107, 108, 109, 110, 111}


def test_every_case_of_dispatch_and_collect_has_a_test() -> None:
    sources = (path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    named = {int(number) for source in sources for number in re.findall(r"def test_field_case_(\d+)_", source)}
    assert not sorted(DISPATCH_AND_COLLECT - named)
