"""``python -m examples.grpo [--passing batch] [section.key=value ...]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from examples.grpo.config import DEFAULT_FILE, load_config


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; 0 when it learned, 2 for a bad configuration, 3 when accuracy rose too little."""
    options = _parse(arguments)
    overrides = list(options.overrides)
    if options.passing:
        overrides.append(f"trainer.passing={options.passing}")
    if options.controller:
        overrides.append(f"trainer.controller={options.controller}")
    try:
        config = load_config(overrides, options.config)
    except (OmegaConfBaseException, ValueError, OSError) as error:
        print(f"configuration: {error}", file=sys.stderr)
        return 2
    from examples.grpo.runner import run  # imports torch and Ray: not for a misspelt override

    # Wide enough for the tables where no terminal says how wide it is.
    console = Console(width=None if sys.stdout.isatty() else 120)
    outcome = run(config, console)
    if outcome.exit_code:
        console.print(
            f"[red]held-out accuracy rose by {outcome.gain:+.3f}, trainer.required_gain is {outcome.required_gain}"
        )
    return outcome.exit_code


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.grpo", description="GRPO whose controller ships metadata")
    parser.add_argument("--config", type=Path, default=DEFAULT_FILE, help="another configuration file")
    parser.add_argument("--passing", choices=("metadata", "batch"), help="short for trainer.passing=")
    parser.add_argument("--controller", choices=("driver", "actor"), help="short for trainer.controller=")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value", help="values over those of the file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
