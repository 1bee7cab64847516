"""What docs/flow.md shows, run as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import wrong_on

PAGE = Path(__file__).parents[3] / "docs" / "flow.md"


@pytest.mark.timeout(120)
def test_the_sample_prints_what_the_page_says(tmp_path: Path) -> None:
    assert wrong_on(PAGE, tmp_path) == ""
