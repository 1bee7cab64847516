"""Which ranks of a group run a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transferqueue.workers.dynamic_enum import DynamicEnum


class Execute(DynamicEnum):
    """Which ranks run a call.

    * `ALL` (the default of `register`): every rank runs the method.
    * `RANK_ZERO`: rank 0 alone does, and its output is the result.
    """

    if TYPE_CHECKING:
        ALL: Any
        RANK_ZERO: Any


Execute.register("ALL")
Execute.register("RANK_ZERO")


def get_predefined_execute_fn(execute_mode: Any) -> dict[str, str]:
    """The name of the group method behind a mode: ``{"execute_fn_name": "execute_all"}``."""
    names = {Execute.ALL: "execute_all", Execute.RANK_ZERO: "execute_rank_zero"}
    if execute_mode not in names:
        raise ValueError(f"execute_mode must be one of {list(names)}, got {execute_mode!r}")
    return {"execute_fn_name": names[execute_mode]}
