"""The methods of roles as they stand on the one actor that holds them.

A method has the name ``role.method`` there. A dot is in no method's name, so roles whose names begin alike stay apart:
``actor`` with a method ``rollout_update`` and ``actor_rollout`` with ``update`` would both be ``actor_rollout_update``
when joined by an underscore. That form, which programs know, is kept beside it where it means one method.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from transferqueue.workers.dispatch_modes import Dispatch
from transferqueue.workers.register import register, registration_of

_Route = Callable[..., Any]
_ROLE_AND_METHOD = "_tq_role_and_method"


def route_name(role: str, method: str) -> str:
    """The name of a role's method on the actor."""
    return f"{role}.{method}"


@dataclass(frozen=True)
class RoleRoute:
    """What the methods of a role are called on the actor."""

    role: str

    def __call__(self, method: str) -> str:
        return route_name(self.role, method)


def routes(roles: Mapping[str, type]) -> dict[str, _Route]:
    """The functions of an actor class that pass each call on to the worker of a role, by their `route_name`.

    Every method of a role has one, registered or not, so that ``execute_all_sync("any_method")`` finds it.
    """
    return {
        route_name(role, method): _route(role, method, function)
        for role, role_class in roles.items()
        for method, function in methods_of(role_class)
    }


def prefixed(roles: Mapping[str, type]) -> dict[str, _Route]:
    """The registered methods by their other name, ``role_method``. One that means two methods raises when called."""
    meanings: dict[str, list[tuple[str, str, Any]]] = {}
    for role, role_class in roles.items():
        for method, function in methods_of(role_class):
            if registration_of(function) is not None:
                meanings.setdefault(f"{role}_{method}", []).append((role, method, function))
    named: dict[str, _Route] = {}
    for name, found in meanings.items():
        if len(found) > 1:
            named[name] = _ambiguous(name, [route_name(role, method) for role, method, _ in found])
            continue
        role, method, function = found[0]
        named[name] = _route(role, method, function)
        # With the registration, so that the group of the actors has the method too.
        vars(named[name]).update({**vars(function), _ROLE_AND_METHOD: (role, method)})
        named[name].__name__ = named[name].__qualname__ = name
    return named


def role_and_method(function: object) -> tuple[str, str] | None:
    """Which method of which role a function of `prefixed` stands for; None for any other object."""
    found: tuple[str, str] | None = getattr(function, _ROLE_AND_METHOD, None)
    return found


def fused_names(roles: Mapping[str, type]) -> dict[str, str]:
    """``role_fwmn_method``, as programs for fused workers spell it, to the `route_name`."""
    return {
        f"{role}_fwmn_{method}": route_name(role, method)
        for role, role_class in roles.items()
        for method, _ in methods_of(role_class)
    }


def methods_of(role_class: type) -> Iterator[tuple[str, Any]]:
    """Name and function of each method that has a route."""
    for name in dir(role_class):
        static = inspect.getattr_static(role_class, name, None)
        if not name.startswith("__") and isinstance(static, (FunctionType, staticmethod, classmethod)):
            yield name, getattr(role_class, name)


def _route(role: str, method: str, function: Any) -> _Route:
    if inspect.iscoroutinefunction(function):
        route = _coroutine(role, method)
    elif inspect.isasyncgenfunction(function):
        route = _async_generator(role, method)
    elif inspect.isgeneratorfunction(function):
        route = _generator(role, method)
    else:
        route = _plain(role, method)
    if inspect.isfunction(function):  # of a static or class method the signature has no place for self
        functools.update_wrapper(route, function, updated=())
        # What `ray.method` says of it, such as a number of return values.
        vars(route).update({name: value for name, value in vars(function).items() if name.startswith("__ray_")})
    route.__name__ = route.__qualname__ = route_name(role, method)
    return route


# A class of a main program travels to its ranks by value, and with it these functions. What they name is a method of
# the actor's class, and nothing of this module.


def _plain(role: str, method: str) -> _Route:
    def route(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.worker_of(role), method)(*args, **kwargs)

    return route


def _coroutine(role: str, method: str) -> _Route:
    async def route(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await getattr(self.worker_of(role), method)(*args, **kwargs)

    return route


def _generator(role: str, method: str) -> _Route:
    def route(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (yield from getattr(self.worker_of(role), method)(*args, **kwargs))

    return route


def _async_generator(role: str, method: str) -> _Route:
    async def route(self: Any, *args: Any, **kwargs: Any) -> Any:
        async for item in getattr(self.worker_of(role), method)(*args, **kwargs):
            yield item

    return route


def _ambiguous(name: str, meanings: list[str]) -> _Route:
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def ambiguous(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise AttributeError(
            f"{name} may mean {' and '.join(meanings)}: call it on the group that spawn() gives a role"
        )

    ambiguous.__name__ = ambiguous.__qualname__ = name
    return ambiguous
