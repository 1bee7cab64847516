"""A resolved batch whose columns all go through `FieldReader`: what the native columns must agree with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transferqueue import _native


class GeneralOnly:
    """`resolved` with the native columns declined."""

    def __init__(self, resolved: _native.Resolved) -> None:
        self._resolved = resolved

    def __getattr__(self, name: str) -> Any:
        return getattr(self._resolved, name)

    def columns(
        self, types: Any, fields: Sequence[str], **how: Any
    ) -> tuple[dict[str, None], list[Any], list[Any], int, int]:
        return dict.fromkeys(fields), [(name, None) for name in fields], [], 0, 0
