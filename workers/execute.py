"""Which ranks of a group run a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transferqueue.workers.dynamic_enum import DynamicEnum
from transferqueue.workers.errors import UnknownModeError


class Execute(DynamicEnum):
    """Which ranks run a call.

    * `ALL` (the default of `register`): every rank runs the method.
    * `RANK_ZERO`: rank 0 alone does, and its output is the result.

    A further value is named after a method of the group: ``Execute.register("LAST_RANK")`` stands for the group's
    ``execute_last_rank(method_name, *args, **kwargs)``, which calls the ranks as it likes and returns a future, Ray
    references or values; the mode's collect function gets what comes of it. It travels to the ranks by its name.
    """

    if TYPE_CHECKING:
        ALL: Any
        RANK_ZERO: Any


_PREFIX = "execute_"

Execute.register("ALL")
Execute.register("RANK_ZERO")


def get_predefined_execute_fn(execute_mode: Any) -> dict[str, str]:
    """The name of the group method behind a mode: ``{"execute_fn_name": "execute_all"}``.

    `UnknownModeError` for what is no member of `Execute`.
    """
    if not isinstance(execute_mode, Execute):
        raise UnknownModeError(
            f"execute_mode must be one of {list(Execute)}, got {execute_mode!r}",
            mode=execute_mode,
            known=tuple(Execute.names()),
        )
    name = execute_mode.name.lower()
    return {"execute_fn_name": name if name.startswith(_PREFIX) else _PREFIX + name}
