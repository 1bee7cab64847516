"""The accessors of what users attach to a batch: extra_info (one dict) and custom_meta (one dict per row)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transferqueue.metadata.copying import copy_info, copy_row_dicts


class UserInfo:
    """Base of `BatchMeta` that holds these accessors; the values themselves live in the subclass."""

    __slots__ = ()

    @property
    def extra_info(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def custom_meta(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def get_extra_info(self, key: str, default: Any = None) -> Any:
        return self.extra_info.get(key, default)

    def set_extra_info(self, key: str, value: Any) -> None:
        self.extra_info[key] = value

    def update_extra_info(self, info_dict: Mapping[str, Any]) -> None:
        self.extra_info.update(info_dict)

    def remove_extra_info(self, key: str) -> Any:
        """Removes `key` and returns its value, `None` when it is not there."""
        return self.extra_info.pop(key, None)

    def clear_extra_info(self) -> None:
        self.extra_info.clear()

    def has_extra_info(self, key: str) -> bool:
        return key in self.extra_info

    def get_all_extra_info(self) -> dict[str, Any]:
        """A deep copy of extra_info."""
        return copy_info(self.extra_info)

    def get_all_custom_meta(self) -> list[dict[str, Any]]:
        """A deep copy of custom_meta, one dict per row in the order of the rows."""
        return copy_row_dicts(self.custom_meta)

    def update_custom_meta(self, custom_meta: Sequence[Mapping[str, Any]] | None) -> None:
        """Merges one dict per row into custom_meta; `None` changes nothing. `ValueError` on another length."""
        if custom_meta is None:
            return
        rows = self.custom_meta
        if len(custom_meta) != len(rows):
            raise ValueError(f"update_custom_meta: {len(custom_meta)} dicts do not match the {len(rows)} rows")
        for row, new in zip(rows, copy_row_dicts(custom_meta), strict=True):
            row.update(new)

    def clear_custom_meta(self) -> None:
        self.custom_meta[:] = [{} for _ in self.custom_meta]
