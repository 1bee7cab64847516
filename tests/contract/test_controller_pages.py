"""The pages on the controller and on workers: their samples are run as they stand and print what the pages say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import samples_of, wrong_on
from tests.support.warm_workers import warm_workers

pytestmark = pytest.mark.timeout(120)
DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["controller.md", "workers.md"])
def test_samples_print_what_the_page_says(name: str, tmp_path: Path) -> None:
    assert samples_of(DOCS / name)
    with warm_workers():
        assert wrong_on(DOCS / name, tmp_path) == ""
