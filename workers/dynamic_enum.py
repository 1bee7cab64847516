"""An enum that can be extended after its class is defined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar


class _DynamicEnumMeta(type):
    """Class-level look-up: ``Dispatch["ONE_TO_ALL"]``, ``Dispatch.ONE_TO_ALL``, iteration, ``in``."""

    _members: dict[str, Any]

    def __iter__(cls) -> Iterator[Any]:
        return iter(list(cls._members.values()))

    def __len__(cls) -> int:
        return len(cls._members)

    def __contains__(cls, item: object) -> bool:
        return any(item is member or item == member.name for member in cls._members.values())

    def __getitem__(cls, name: str) -> Any:
        try:
            return cls._members[name]
        except KeyError:
            raise KeyError(f"{cls.__name__} has no member {name!r}; it has {', '.join(cls._members)}") from None

    def __getattr__(cls, name: str) -> Any:
        # Only reached when normal look-up failed. Private names must fail plainly: copy and pickle probe for them.
        if not name.startswith("_") and name in cls._members:
            return cls._members[name]
        raise AttributeError(f"{cls.__name__} has no member {name!r}; it has {', '.join(cls._members)}")


class DynamicEnum(metaclass=_DynamicEnumMeta):
    """Base of `Dispatch` and `Execute`: members are singletons with `name` and `value`, added by `register`.

    A member pickles by name, so it is the same object again in another process. A process that has not run the
    `register` of a member creates it when it unpickles one: a rank need not import the driver's script for that.
    """

    _members: ClassVar[dict[str, Any]] = {}

    name: str
    value: int

    def __init__(self, name: str, value: int) -> None:
        self.name = name
        self.value = value

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._members = {}

    @classmethod
    def register(cls, name: str) -> Any:
        """Adds a member and returns it. `ValueError` for a name that is taken or no identifier."""
        upper = name.upper()
        if not upper.isidentifier() or upper.startswith("_"):
            raise ValueError(f"{cls.__name__}: {name!r} is no name for a member")
        if upper in cls._members:
            raise ValueError(f"{cls.__name__} has a member {upper!r} already")
        member = cls(upper, len(cls._members))
        cls._members[upper] = member
        return member

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _member_of, (type(self), self.name)


def _member_of(cls: type[DynamicEnum], name: str) -> Any:
    return cls._members[name] if name in cls._members else cls.register(name)
