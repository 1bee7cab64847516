"""The page is what the catalogue says."""

from __future__ import annotations

from pathlib import Path

from transferqueue.metrics.page import page

ROOT = Path(__file__).parents[4]


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == page(), (
        "run python -m transferqueue.metrics.page >docs/metrics.md"
    )
