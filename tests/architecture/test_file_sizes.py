"""Files stay small: about 300 lines is the aim, at 500 something is two things."""

from __future__ import annotations

import subprocess

import pytest

from tests.architecture.source_tree import ROOT

LIMIT_LINES = 500


def _committed(*patterns: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: the list of files is git's")
    return [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).exists()]


def test_no_source_file_is_too_long() -> None:
    files = _committed("*.py", "*.pyi", "*.cpp", "*.hpp")
    assert len(files) > 50
    sizes = {name: len((ROOT / name).read_text().splitlines()) for name in files}
    assert not {name: lines for name, lines in sizes.items() if lines > LIMIT_LINES}


def test_no_machine_path_is_committed() -> None:
    # Spelled in two parts so that this file does not contain what it looks for.
    forbidden = ["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/"]
    wrong = []
    for name in _committed():
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue  # pictures
        wrong.extend(f"{name}: {word}" for word in forbidden if word in text)
    assert not wrong
