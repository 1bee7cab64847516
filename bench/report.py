"""Command line of every measuring script: `python -m bench.X NAME ... --rows N --rounds N`, a line of JSON each."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Mapping

from bench.timing import Measured

RESULT = "RESULT "
FAILED = "FAILED "


def in_a_line(error: Exception) -> str:
    """What it is, what it says, and where that is a trace of another process, that one's last line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ... ".join([f"{type(error).__name__}: {lines[0] if lines else ''}", *lines[1:][-1:]])


def main(measures: Mapping[str, Callable[[int, int], Measured | list[Measured]]]) -> int:
    """Runs the named measurements one after another; one that fails is reported and does not stop the others."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(sorted(measures))} (default: all)")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(measures))
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are: {', '.join(sorted(measures))}")
    status = 0
    for name in arguments.names or measures:
        try:
            found = measures[name](arguments.rows, arguments.rounds)
        except Exception as error:
            status = 1
            traceback.print_exc()
            print(FAILED + json.dumps({"name": name, "error": in_a_line(error)}), flush=True)
            continue
        listed = found if isinstance(found, list) else [found]
        print(RESULT + json.dumps([item.as_json() for item in listed]), flush=True)
    sys.stdout.flush()
    return status
