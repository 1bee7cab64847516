"""``python -m examples.grpo [--passing batch] [section.key=value ...]``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from examples.common.command_line import Outcome, run_command
from examples.grpo.config import DEFAULT_FILE, GrpoConfig, load_config


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; 0 when it learned, 2 for a bad configuration, 3 when accuracy rose too little."""
    return run_command(
        arguments,
        name="examples.grpo",
        description="GRPO whose controller ships metadata",
        default_file=DEFAULT_FILE,
        switches={"passing": ("metadata", "batch"), "controller": ("driver", "actor")},
        load=load_config,
        run=_run,
    )


def _run(config: GrpoConfig, console: Console) -> Outcome:
    from examples.grpo.runner import run  # imports torch and Ray: not for a misspelt override

    return run(config, console)


if __name__ == "__main__":
    sys.exit(main())
