"""Programs of this package's own, started as ``python -m``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def run_program(
    module: str, *arguments: str, env: Mapping[str, str], **options: Any
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` of a module of ours, with `options`, which ends before this returns.

    It is not started in the folder that we happen to be in: ``-m`` puts that first on the path, and in /tmp the next
    import may find anybody's module. What `PYTHONPATH` names relative to it is still found.
    """
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], env=program_environment(env), cwd="/", check=False, **options
    )


def program_environment(env: Mapping[str, str]) -> dict[str, str]:
    """`env` for a program that is started in another folder: what `PYTHONPATH` names is absolute."""
    entries = [os.path.abspath(entry) for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    environment = {key: value for key, value in env.items() if key != "PYTHONPATH"}
    if entries:
        environment["PYTHONPATH"] = os.pathsep.join(entries)
    return environment
