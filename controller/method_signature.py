"""What the callers of a worker's method must pass."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

_RAYS_PARAMETER = "_ray_trace_ctx"
"""Ray adds it to the signatures of a class of which it makes actors, in the class itself."""


class MethodSignature:
    """The signature of a method without ``self``. `text` names it in errors: ``Critic.compute``."""

    def __init__(self, function: Any, text: str) -> None:
        signature = inspect.signature(function)
        parameters = [one for one in signature.parameters.values() if one.name != _RAYS_PARAMETER][1:]
        self.signature = signature.replace(parameters=parameters)
        self._text = text
        self._plain_counts = _plain_counts(parameters)

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """`TypeError`, which says whose arguments they are, for those that the method does not take."""
        if not kwargs and len(args) in self._plain_counts:
            return
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._text}() {error}") from None

    def names_of(self, args: Sequence[Any]) -> list[str]:
        """The names that positional arguments have, those of ``*args`` numbered."""
        names: list[str] = []
        for parameter in self.signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                names.extend(f"{parameter.name}[{i}]" for i in range(len(args) - len(names)))
            elif parameter.kind is not parameter.KEYWORD_ONLY:
                names.append(parameter.name)
        return names


def _plain_counts(parameters: Sequence[inspect.Parameter]) -> range:
    """How many positional arguments a method takes when there are no others: known without `bind`, which costs more
    than the rest of a dispatch."""
    required = [parameter for parameter in parameters if parameter.default is parameter.empty]
    if any(parameter.kind is parameter.KEYWORD_ONLY for parameter in required):
        return range(0)
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = sum(parameter.kind in by_position for parameter in required)
    return range(needed, sum(parameter.kind in by_position for parameter in parameters) + 1)
