"""An enum that can be extended after its class is defined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar


class _DynamicEnumMeta(type):
    """Class-level look-up: ``Dispatch["ONE_TO_ALL"]``, ``Dispatch.ONE_TO_ALL``, iteration, ``in``."""

    _members: dict[str, Any]

    def names(cls) -> list[str]:
        return list(cls._members)

    def values(cls) -> list[Any]:
        return list(cls._members.values())

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
    `register` of a member creates it when it unpickles one: a rank need not import the driver's script for that. Should
    it run the `register` later (with the module that has it), it gets the member that arrived first.
    """

    _members: ClassVar[dict[str, Any]] = {}
    _arrived: ClassVar[set[str]] = set()
    """Names of members that came from another process and were not registered in this one."""

    name: str
    value: int

    def __init__(self, name: str, value: int) -> None:
        self.name = name
        self.value = value

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._members = {}
        cls._arrived = set()

    @classmethod
    def register(cls, name: str) -> Any:
        """Adds a member and returns it. `ValueError` for a name that is taken or no identifier."""
        upper = name.upper()
        if not upper.isidentifier() or upper.startswith("_"):
            raise ValueError(f"{cls.__name__}: {name!r} is no name for a member")
        if upper in cls._arrived:
            cls._arrived.discard(upper)
            return cls._members[upper]
        if upper in cls._members:
            raise ValueError(f"{cls.__name__} has a member {upper!r} already")
        member = cls(upper, 1 + max((other.value for other in cls._members.values()), default=-1))
        cls._members[upper] = member
        return member

    @classmethod
    def remove(cls, name: str) -> Any:
        """Takes a member out and returns it. `KeyError` naming those there are."""
        member = cls[name.upper()]
        cls._arrived.discard(member.name)
        return cls._members.pop(member.name)

    @classmethod
    def from_name(cls, name: str) -> Any | None:
        """The member of that name in any case, None without one."""
        return cls._members.get(name.upper())

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _member_of, (type(self), self.name)


def _member_of(cls: type[DynamicEnum], name: str) -> Any:
    if name not in cls._members:
        cls.register(name)
        cls._arrived.add(name)
    return cls._members[name]
