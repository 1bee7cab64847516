"""Functions that stand in tracebacks under another name."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any


def under_name(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The same function; a traceback shows ``in <name>`` for it, and a profiler counts it as that.

    `name` must be an identifier with which nothing else is looked up: it is for people to read.
    """
    if not isinstance(function, FunctionType):
        return function
    names = {"co_name": name}
    if hasattr(function.__code__, "co_qualname"):  # from Python 3.11 on
        names["co_qualname"] = name
    renamed = FunctionType(
        function.__code__.replace(**names),  # type: ignore[arg-type]
        function.__globals__,
        name,
        function.__defaults__,
        function.__closure__,
    )
    renamed.__kwdefaults__ = function.__kwdefaults__
    renamed.__doc__ = function.__doc__
    return renamed
