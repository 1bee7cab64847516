"""Methods of a worker class as its Ray actor has them: what Ray cannot carry from a rank to the controller is said.

Ray loses three things without a word: the first element of a generator becomes the answer, `KeyboardInterrupt` reads as
a task that somebody cancelled, and in an actor with an event loop `KeyboardInterrupt` and `SystemExit` end the loop and
leave the process, so that this call and all later ones wait for ever.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import FunctionType
from typing import Any, NoReturn

from transferqueue.workers.register import registration_of

# Set while a method runs: what it calls of its own object is its own matter, generators and exits too.
_in_method: ContextVar[bool] = ContextVar("_in_method", default=False)


def actor_methods(user_class: type, in_loop: bool) -> dict[str, Callable[..., Any]]:
    """The methods of `user_class` that need it, wrapped, by name; `in_loop`: the actor runs all in an event loop.

    Generators that are not registered are left to Ray, which streams what they yield to whoever calls the actor itself.
    """
    found = {}
    for name in dir(user_class):
        function = inspect.getattr_static(user_class, name, None)
        if not isinstance(function, FunctionType) or (name.startswith("__") and name.endswith("__")):
            continue
        streams = inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
        if registration_of(function) or (in_loop and not streams):
            found[name] = _coroutine(function) if inspect.iscoroutinefunction(function) else _plain(function, in_loop)
    return found


# These wrappers travel with the class by value, and what they name, as functions of this module, by name.


def _plain(function: FunctionType, in_loop: bool) -> Callable[..., Any]:
    @functools.wraps(function)
    def method(*args: Any, **kwargs: Any) -> Any:
        return called(function, in_loop, args, kwargs)

    if inspect.isgeneratorfunction(inspect.unwrap(function)):
        # Ray looks through wrappers, and answers such a method with a stream of references.
        setattr(method, "__signature__", inspect.signature(function))  # noqa: B010  (mypy)
        del method.__wrapped__
    return method


def _coroutine(function: FunctionType) -> Callable[..., Any]:
    @functools.wraps(function)
    async def method(*args: Any, **kwargs: Any) -> Any:
        return await async_called(function, args, kwargs)

    return method


def called(function: FunctionType, in_loop: bool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What a method returns. Raises `TypeError` for a generator of a registered one; see `leave` for the exits."""
    if _in_method.get():
        return function(*args, **kwargs)
    token = _in_method.set(True)
    try:
        output = function(*args, **kwargs)
    except (KeyboardInterrupt, SystemExit) as error:
        leave(error, function.__qualname__, in_loop)
    finally:
        _in_method.reset(token)
    if (inspect.isgenerator(output) or inspect.isasyncgen(output)) and registration_of(function):
        raise TypeError(
            f"{function.__qualname__} returned a generator, which cannot leave its process; return a list of what it "
            "yields"
        )
    return output


async def async_called(function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`called`, for a coroutine method."""
    if _in_method.get():
        return await function(*args, **kwargs)
    token = _in_method.set(True)
    try:
        return await function(*args, **kwargs)
    except (KeyboardInterrupt, SystemExit) as error:
        leave(error, function.__qualname__, True)
    finally:
        _in_method.reset(token)


def leave(error: BaseException, name: str, in_loop: bool) -> NoReturn:
    """Ends the process for `SystemExit`, as it does outside a loop too; raises `RuntimeError` for an interrupt."""
    if isinstance(error, KeyboardInterrupt):
        raise RuntimeError(f"{name} raised KeyboardInterrupt({str(error)!r})") from error
    if not in_loop:
        raise error
    traceback.print_exception(error)
    sys.stdout.flush()
    sys.stderr.flush()
    code = error.code if isinstance(error, SystemExit) else 1
    os._exit(code if isinstance(code, int) else int(code is not None))
