"""Each case of sections D and F, and that of waiting, has a test that carries its number, here or beside the module
that it is about."""

from __future__ import annotations

import re
from pathlib import Path

DISPATCH_AND_COLLECT = {96, 98, 100, 103, 104, 105, 106, 107, 108, 109, 110, 111}

FAULTS_AND_SHARED_MEMORY = {62, 63, 64, 68, 69, 70, 72, 74, 75, 76, 77, 79, 81, 82, 83, 86}

WAITING = {94}


def test_every_case_has_a_test() -> None:
    sources = (path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    named = {int(number) for source in sources for number in re.findall(r"def test_field_case_(\d+)_", source)}
    assert not sorted((DISPATCH_AND_COLLECT | FAULTS_AND_SHARED_MEMORY | WAITING) - named)
