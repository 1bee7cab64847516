"""What is said about ``group.x`` when there is no `x`."""

from __future__ import annotations

import difflib
from collections.abc import Collection

from transferqueue.errors import name_some


def unknown_member(group_name: str, name: str, user_class: type | None, registered: Collection[str]) -> AttributeError:
    """The error for a name that a group does not have: whether its worker class has it without `register`, and what is
    there."""
    shown = sorted(method for method in registered if not method.startswith("_"))
    there = f"methods registered on the worker class: {name_some(shown, 20) or 'none'}"
    found = getattr(user_class, name, None)
    if user_class is not None and callable(found):
        return AttributeError(
            f"{group_name} has no member {name!r}: {user_class.__name__}.{name} is there, but without @register. "
            f"Decorate it with @register(...), or run it with group.execute_all_sync({name!r}, ...); {there}",
        )
    of_class = "the worker class" if user_class is None else user_class.__name__
    if user_class is not None and hasattr(user_class, name):
        kind = f"{of_class}.{name} is no method but of type {type(found).__name__}, which a group does not show"
    else:
        near = difflib.get_close_matches(name, list(registered), 1)
        kind = f"{of_class} has none either" + (f"; did you mean {near[0]!r}?" if near else "")
    return AttributeError(f"{group_name} has no member {name!r}; {there}. {kind}")
