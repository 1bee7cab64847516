"""``python -m examples.ppo [--controller actor] [section.key=value ...]``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from examples.common.command_line import Outcome, run_command
from examples.ppo.config import DEFAULT_FILE, PpoConfig, load_config


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; 0 when it learned, 2 for a bad configuration, 3 when accuracy rose too little."""
    return run_command(
        arguments,
        name="examples.ppo",
        description="PPO on colocated worker groups",
        default_file=DEFAULT_FILE,
        switches={"controller": ("driver", "actor"), "reference": ("inside", "switched")},
        load=load_config,
        run=_run,
    )


def _run(config: PpoConfig, console: Console) -> Outcome:
    from examples.ppo.runner import run  # imports torch and Ray: not for a misspelt override

    return run(config, console)


if __name__ == "__main__":
    sys.exit(main())
