"""Programs that run where file systems are small."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run_with_small(sizes: dict[str, str], program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What a Python program did in a mount namespace of its own, with a tmpfs of each size (``64m``) at its folder.
    Skips the test where mounting is not allowed."""
    mounts = [f"mount -t tmpfs -o size={size} tmpfs {folder}" for folder, size in sizes.items()]
    command = ["unshare", "--mount", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("needs the right to mount")
    return subprocess.run(
        [*command, sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=110, check=False
    )
