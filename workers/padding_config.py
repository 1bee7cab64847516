"""Whether calls pad their batches where neither the method nor the group nor the batch says."""

from __future__ import annotations

import os

from transferqueue.workers.errors import DispatchError

VARIABLE = "VERL_AUTO_PADDING"
"""1 or true: padding is on in this process. Read at each call, as programs set it at any time."""


class _Switch(type):
    _auto_padding = False

    @property
    def auto_padding(cls) -> bool:
        """On when it was set so in this process, or the environment says so."""
        return cls._auto_padding or os.environ.get(VARIABLE, "").strip().lower() in ("1", "true")

    @auto_padding.setter
    def auto_padding(cls, enabled: bool) -> None:
        if not isinstance(enabled, bool):
            raise DispatchError(f"DataProtoConfig.auto_padding is True or False, got {enabled!r}")
        cls._auto_padding = enabled


class DataProtoConfig(metaclass=_Switch):
    """``DataProtoConfig.auto_padding = True`` pads the batches of every call in this process that splits rows."""

    auto_padding_key = "_verl_auto_padding"
    """The entry of a DataProto's meta_info that turns padding on for that batch."""
