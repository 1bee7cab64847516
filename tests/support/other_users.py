"""Other users of the machine: as root, a test may make their files and act as one of them in a child."""

from __future__ import annotations

import os

import pytest

# Neither has an account or a process.
VICTIM, OTHER = 54321, 54322
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as other users")


def become(uid: int) -> None:
    """This process is that user's from now on, for good: only in children. What is used afterwards must have been
    imported: that user need not be able to read Python's own folders."""
    import encodings.ascii  # noqa: F401  (used by `open`, whoever opens)

    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
