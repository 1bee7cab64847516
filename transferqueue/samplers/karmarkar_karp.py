"""Splitting rows among ranks so that every rank has about the same number of tokens to work on."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

# One way to split the rows seen so far: the parts as (sum of lengths, positions of the rows), largest sum first.
_Split = list[tuple[int, list[int]]]


def get_seqlen_balanced_partitions(seqlen_list: Sequence[int], k_partitions: int, equal_size: bool) -> list[list[int]]:
    """Splits rows into parts whose sums of lengths are as close as a fast heuristic gets them.

    The largest differencing method of Karmarkar and Karp ("The differencing method of set partitioning", UCB/CSD
    82/113, 1982) in its form for k parts (Korf, "Multi-way number partitioning", IJCAI 2009); with `equal_size` its
    balanced variant (Yakir, "The differencing algorithm LDM for partitioning", Mathematics of Operations Research 21,
    1996; for k parts: Michiels, Korst, Aarts and van Leeuwen, ISAAC 2003). O(n (log n + k log k)) for n rows.

    Args:
        seqlen_list: length of each row, for instance in tokens.
        k_partitions: number of parts.
        equal_size: every part gets the same number of rows.

    Returns:
        Positions in `seqlen_list`, ascending within each part; the part with the largest sum comes first. No part is
        empty.

    Raises:
        AssertionError: fewer rows than parts; with `equal_size` a number of rows that k does not divide.
        ValueError: `k_partitions` is not positive.
    """
    n_rows = len(seqlen_list)
    if k_partitions <= 0:
        raise ValueError(f"k_partitions must be positive, not {k_partitions}")
    # The types are those that callers of this function know it by.
    if n_rows < k_partitions:
        raise AssertionError(f"number of items:[{n_rows}] < k_partitions:[{k_partitions}]")
    if equal_size and n_rows % k_partitions:
        raise AssertionError(
            f"{n_rows} % {k_partitions} != 0: {n_rows} items do not make {k_partitions} partitions of equal size"
        )
    descending = sorted(range(n_rows), key=lambda row: (-seqlen_list[row], row))
    splits: list[_Split]
    if equal_size:  # rows of neighbouring lengths go to different parts, so that each merge keeps the sizes equal
        splits = [
            [(seqlen_list[row], [row]) for row in descending[at : at + k_partitions]]
            for at in range(0, n_rows, k_partitions)
        ]
    else:
        splits = [
            [(seqlen_list[row], [row]), *((0, list[int]()) for _ in range(k_partitions - 1))] for row in descending
        ]
    return [sorted(rows) for _, rows in _difference(splits)]


def _difference(splits: list[_Split]) -> _Split:
    """Merges the two splits of the largest spread until one is left."""
    # The number breaks ties: the earlier, and so the longer rows first.
    heap = [(_negative_spread(split), number, split) for number, split in enumerate(splits)]
    heapq.heapify(heap)
    for number in range(len(splits), 2 * len(splits) - 1):
        _, _, first = heapq.heappop(heap)
        _, _, second = heapq.heappop(heap)
        merged = [
            (one_sum + other_sum, _joined(one, other))
            for (one_sum, one), (other_sum, other) in zip(first, reversed(second), strict=True)
        ]
        # Of equal sums the one with fewer rows counts as the smaller, so that rows of length 0 leave no part empty.
        merged.sort(key=lambda part: (-part[0], -len(part[1])))
        heapq.heappush(heap, (_negative_spread(merged), number, merged))
    return heap[0][2]


def _negative_spread(split: _Split) -> int:
    return split[-1][0] - split[0][0]


def _joined(one: list[int], other: list[int]) -> list[int]:
    """Both lists in one, which is the longer of the two: a row moves O(log n) times in all."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    longer.extend(shorter)
    return longer
