"""A worker class with the arguments of its constructor, for a group to build on every rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClassWithInitArgs:
    """A class and its arguments, to be built elsewhere."""

    def __init__(self, cls: Any, *args: Any, **kwargs: Any) -> None:
        self.cls = cls
        self.args = args
        self.kwargs = kwargs

    @property
    def user_class(self) -> type:
        """The plain class, without the wrapping of ``ray.remote``."""
        return getattr(self.cls, "__ray_actor_class__", self.cls)  # type: ignore[no-any-return]

    def __call__(self) -> Any:
        return self.cls(*self.args, **self.kwargs)


class RayClassWithInitArgs(ClassWithInitArgs):
    """A worker class for `RayWorkerGroup`.

    Args:
        cls: the class, plain or after ``ray.remote``.
        args, kwargs: for the constructor, the same on every rank (`PerRank([...])` for one that differs).
    """

    def __init__(self, cls: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(cls, *args, **kwargs)
        self.options: dict[str, Any] = {}

    def update_options(self, options: Mapping[str, Any]) -> None:
        """Further options of the Ray actors, as ``.options(...)`` takes them."""
        self.options.update(options)
