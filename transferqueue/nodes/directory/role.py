"""Who has a partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transferqueue.errors import CorruptSegmentError


@dataclass(frozen=True)
class Role:
    """Who has a partition.

    Attributes:
        home: ordinal of the node that answers for it; None: it has none.
        standby: ordinal of the node that has followed every change that was acknowledged, and takes the home's place
            when that is lost; None: nobody.
        epoch: how often a standby took over.
    """

    home: int | None
    standby: int | None = None
    epoch: int = 0

    def message(self) -> list[int | None]:
        """As it travels."""
        return [self.home, self.standby, self.epoch]


def role_of_message(message: Any) -> Role:
    """Raises CorruptSegmentError for what is none."""
    match message:
        case [None | int() as home, None | int() as standby, int() as epoch]:
            return Role(home, standby, epoch)
    raise CorruptSegmentError(f"the directory answered what is no answer: {str(message)[:200]!r}")
