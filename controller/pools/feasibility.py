"""Whether bundles fit nodes: exact where that can be decided quickly, and "perhaps" where it cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Nodes that the search looks at before "perhaps" is the answer: some tenths of a second.
_MAX_LOOKS = 500_000

_Amounts = tuple[int, ...]


@dataclass(frozen=True)
class Demand:
    """`bundles` bundles of one entry of the pool `pool`; `on_one_node` when they must not be spread."""

    pool: str
    entry: int
    bundles: int
    bundle: Mapping[str, float]
    on_one_node: bool = True


def bundles_of_room(room: Mapping[str, float], bundle: Mapping[str, float]) -> int:
    """How many bundles a node with `room` takes."""
    wanted = {name: _steps(amount) for name, amount in bundle.items() if _steps(amount) > 0}
    return min((_steps(room.get(name, 0.0)) // amount for name, amount in wanted.items()), default=0)


def can_fit(demands: Sequence[Demand], rooms: Sequence[Mapping[str, float]]) -> bool:
    """Whether nodes with `rooms` can take all `demands` at the same time.

    False only when it is certain. Finding the best packing is a hard problem in general; with the shapes that occur
    (few kinds of entries, equal nodes) the search ends after some dozen steps.
    """
    names = sorted({name for demand in demands for name in demand.bundle})
    items: list[_Amounts] = []
    for demand in demands:
        one = tuple(_steps(demand.bundle.get(name, 0.0)) for name in names)
        items += [tuple(a * demand.bundles for a in one)] if demand.on_one_node else [one] * demand.bundles
    free = [tuple(_steps(room.get(name, 0.0)) for name in names) for room in rooms]
    totals = [sum(column) for column in zip(*free, strict=True)] if free else [0] * len(names)
    if any(sum(column) > total for column, total in zip(zip(*items, strict=True), totals, strict=True)):
        return False
    # Large ones first: what is left over is then small enough to go anywhere.
    items.sort(key=lambda item: max(a / total if total else 0.0 for a, total in zip(item, totals, strict=True)))
    return _Search(items[::-1], free).run()


class _Search:
    """Depth first over the items; `free` holds what each node has left."""

    def __init__(self, items: list[_Amounts], free: list[_Amounts]) -> None:
        self._items = items
        self._free = free
        self._looks_left = _MAX_LOOKS

    def run(self) -> bool:
        # A stack of (node that item i is on, what that node had before); recursion would be as deep as there are items.
        chosen: list[tuple[int, _Amounts]] = []
        node = -1
        while len(chosen) < len(self._items):
            node = self._next_node(len(chosen), node)
            if node >= 0:
                self._looks_left -= len(self._free)
                if self._looks_left <= 0:
                    return True
                item = self._items[len(chosen)]
                chosen.append((node, self._free[node]))
                self._free[node] = tuple(a - b for a, b in zip(self._free[node], item, strict=True))
                # Equal items are interchangeable: the next one need not look at nodes before this one's.
                following = len(chosen)
                same = following < len(self._items) and self._items[following] == item
                node = node - 1 if same else -1
            elif chosen:
                node, before = chosen.pop()
                self._free[node] = before
            else:
                return False
        return True

    def _next_node(self, number: int, after: int) -> int:
        """The next node that takes the item, or -1; of nodes with equal room the first stands for all."""
        item = self._items[number]
        seen = set(self._free[: after + 1])
        for node in range(after + 1, len(self._free)):
            room = self._free[node]
            if room not in seen and all(a >= b for a, b in zip(room, item, strict=True)):
                return node
            seen.add(room)
        return -1


def _steps(amount: float) -> int:
    """Ray counts in steps of 0.0001."""
    return round(amount * 10_000)
