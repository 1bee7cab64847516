"""``python -m examples.<name> [--switch value ...] [section.key=value ...]``, the same for every trained example."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf.errors import OmegaConfBaseException
from rich.console import Console


@dataclass(frozen=True)
class Outcome:
    """How a run ended: held-out accuracy at its end less that after the warm-up, against what was required."""

    gain: float
    required_gain: float

    @property
    def exit_code(self) -> int:
        """0, or 3 when held-out accuracy rose by less than the configuration requires."""
        return 0 if self.gain >= self.required_gain else 3


def run_command(
    arguments: Sequence[str] | None,
    *,
    name: str,
    description: str,
    default_file: Path,
    switches: Mapping[str, tuple[str, ...]],
    load: Callable[[Sequence[str], Path], Any],
    run: Callable[[Any, Console], Outcome],
) -> int:
    """Reads the command line and runs; 0 when it learned, 2 for a bad configuration, 3 when accuracy rose too little.

    ``--<switch> <choice>`` is short for ``trainer.<switch>=<choice>``.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=description)
    parser.add_argument("--config", type=Path, default=default_file, help="another configuration file")
    for switch, choices in switches.items():
        parser.add_argument(f"--{switch}", choices=choices, help=f"short for trainer.{switch}=")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="values over those of the file")
    options = parser.parse_args(arguments)
    chosen = {switch: getattr(options, switch) for switch in switches}
    overrides = [*options.overrides, *(f"trainer.{switch}={value}" for switch, value in chosen.items() if value)]
    try:
        config = load(overrides, options.config)
    except (OmegaConfBaseException, ValueError, OSError) as error:
        print(f"configuration: {error}", file=sys.stderr)
        return 2
    # Wide enough for the tables where no terminal says how wide it is.
    console = Console(width=None if sys.stdout.isatty() else 120)
    outcome = run(config, console)
    if outcome.exit_code:
        console.print(
            f"[red]held-out accuracy rose by {outcome.gain:+.3f}, trainer.required_gain is {outcome.required_gain}"
        )
    return outcome.exit_code
