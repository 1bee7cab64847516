"""Command line of every measuring script: `python -m bench.X NAME --rows N --rounds N` prints one JSON object."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping

from bench.timing import Measured


def main(measures: Mapping[str, Callable[[int, int], Measured | list[Measured]]]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=sorted(measures))
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    found = measures[arguments.name](arguments.rows, arguments.rounds)
    print(
        "RESULT " + json.dumps([item.as_json() for item in (found if isinstance(found, list) else [found])]), flush=True
    )
    return 0
