"""What runs on the pools of these tests."""

from __future__ import annotations

import os


class Seer:
    """Tells what it sees of the machine."""

    def place(self) -> dict[str, str]:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "WG_RANK_NODES")
        return {name: os.environ.get(name, "") for name in names}

    def devices(self) -> str:
        return os.environ.get("CUDA_VISIBLE_DEVICES", "")


class Blind(Seer):
    """The same, for messages that tell groups apart."""
