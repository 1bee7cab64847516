"""Tables in plain text."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line per row, the cells of a column below each other."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def ranges_text(numbers: Sequence[int], limit: int = 8) -> str:
    """``"0-3, 7"`` for ascending runs in the order given; of many runs the first `limit` and how many more."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in runs[:limit]]
    more = len(runs) - len(shown)
    return ", ".join(shown) + (f" and {more} more runs" if more else "")
