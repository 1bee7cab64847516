"""The public surface is typed: mypy strict and pyright agree on code that uses it as the README does."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOOLS = {"mypy": ["-m", "mypy", "--strict", "--config-file", "pyproject.toml"], "pyright": ["-m", "pyright"]}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_users_code_type_checks(tool: str) -> None:
    if importlib.util.find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed")
    command = [sys.executable, *TOOLS[tool], str(HERE / "users_code.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
