"""Tables and numbers of the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from transferqueue.printable import printable


def show_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table: by rich on a terminal, tab-separated lines for programs and where rich is not installed."""
    listed = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        try:
            from rich.console import Console
            from rich.table import Table
        except ImportError:
            pass
        else:
            table = Table(*header, show_header=any(header))
            for row in listed:
                table.add_row(*[cell.replace("[", "\\[") for cell in row])
            Console().print(table)
            return
    if any(header):
        print("\t".join(header))
    for row in listed:
        print("\t".join(row))


def counted(number: int, one: str, more: str | None = None) -> str:
    """``1 block``, ``2 blocks``; with `more` where the plural is another than an s."""
    return f"{number} {one if number == 1 else more or one + 's'}"
