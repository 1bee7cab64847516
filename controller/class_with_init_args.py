"""A class with the arguments of its constructor, to be built elsewhere."""

from __future__ import annotations

from typing import Any


class ClassWithInitArgs:
    """A class and its arguments. Needs no Ray.

    Args:
        cls: the class, plain or after ``ray.remote``.
        args, kwargs: for the constructor, the same on every rank of a group (`PerRank([...])` for one that differs).

    Raises `TypeError` for what is no class.
    """

    def __init__(self, cls: Any, *args: Any, **kwargs: Any) -> None:
        self.cls = cls
        self.args = args
        self.kwargs = kwargs
        if not isinstance(self.user_class, type):
            raise TypeError(f"{type(self).__name__} takes a class, plain or after ray.remote; got {cls!r:.200}")
        self.fused_worker_used = False

    @property
    def user_class(self) -> type:
        """The plain class, without the wrapping of ``ray.remote``."""
        return getattr(self.cls, "__ray_actor_class__", self.cls)  # type: ignore[no-any-return]

    def __call__(self) -> Any:
        """Builds it here."""
        return self.user_class(*self.args, **self.kwargs)
