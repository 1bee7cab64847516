"""The long form: each fuzzer for TQ_FUZZ_SECONDS (1,800 by default), one after another."""

from __future__ import annotations

import os

import pytest

from tests.fuzz import native_targets
from tests.fuzz.run import fuzz_native, fuzz_python
from tests.fuzz.targets import TARGETS

SECONDS = int(os.environ.get("TQ_FUZZ_SECONDS", "1800"))
pytestmark = [pytest.mark.soak, pytest.mark.timeout(SECONDS + 900)]


@pytest.mark.parametrize("name", native_targets.NAMES)
def test_native_target(name: str) -> None:
    print(fuzz_native(name, SECONDS))


@pytest.mark.parametrize("name", TARGETS)
def test_python_target(name: str) -> None:
    print(fuzz_python(name, SECONDS))
