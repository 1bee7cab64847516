"""Failures of groups whose ranks hold several roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from transferqueue.errors import TransferQueueError


class RoleNotFoundError(TransferQueueError, KeyError, ValueError, AssertionError):
    """A role that the actors do not hold: `role`, and `roles`, those that they do."""

    _declared: ClassVar[Mapping[str, Any]] = {"role": None, "roles": ()}
    role: str | None
    roles: tuple[str, ...]

    @classmethod
    def of(cls, role: str, roles: Iterable[str]) -> RoleNotFoundError:
        """With a text that names both."""
        known = tuple(roles)
        return cls(
            f"no role {role!r}; the class was made of the roles {', '.join(map(repr, known)) or 'none'}",
            role=role,
            roles=known,
        )
