"""What each rank of a group gets as arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class PerRank(list[Any]):
    """Element i goes to rank i: ``group.execute_all("method", PerRank([a, b, c, d]))``.

    Says explicitly what a plain list of the group's length says only when every argument is one.
    """

    def __init__(self, values: Iterable[Any]) -> None:
        super().__init__(values)


class Broadcast:
    """The same value for every rank, also when it is a list as long as the group."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Broadcast({self.value!r})"


RankArguments = tuple[tuple[Any, ...], dict[str, Any]]


def arguments_for_ranks(args: Sequence[Any], kwargs: Mapping[str, Any], world_size: int) -> list[RankArguments]:
    """``[(args, kwargs)]``, one pair per rank.

    With a `PerRank` or a `Broadcast` among the values, each value is taken as it says and plain values are
    broadcast. Without one: when all values are lists as long as the group, element i goes to rank i; else all are
    broadcast.

    Raises `ValueError` for a `PerRank` of another length.
    """
    values = [*args, *kwargs.values()]
    explicit = any(isinstance(value, (PerRank, Broadcast)) for value in values)
    if not explicit and values and all(isinstance(value, list) and len(value) == world_size for value in values):
        args = [PerRank(value) for value in args]
        kwargs = {name: PerRank(value) for name, value in kwargs.items()}
    for name, value in [*((f"argument {i}", arg) for i, arg in enumerate(args)), *kwargs.items()]:
        if isinstance(value, PerRank) and len(value) != world_size:
            raise ValueError(f"PerRank for {name} has {len(value)} elements; the group has {world_size} ranks")
    return [
        (
            tuple(value_for_rank(value, rank) for value in args),
            {name: value_for_rank(value, rank) for name, value in kwargs.items()},
        )
        for rank in range(world_size)
    ]


def value_for_rank(value: Any, rank: int) -> Any:
    """The element of `rank` of a `PerRank`, the value of a `Broadcast`, anything else itself."""
    if isinstance(value, PerRank):
        return value[rank]
    return value.value if isinstance(value, Broadcast) else value
