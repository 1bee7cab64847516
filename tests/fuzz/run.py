"""Runs every fuzz target, one after another: ``python -m tests.fuzz.run [--seconds N] [TARGET...]``."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence

from tests.fuzz import native_targets
from tests.fuzz.targets import TARGETS

_EXECUTIONS = re.compile(r"number_of_executed_units: (\d+)|(\d+) executions")
_COVERAGE = re.compile(r"cov: (\d+) ft: (\d+)")


def fuzz_native(name: str, seconds: int) -> str:
    """What was run; RuntimeError with the output when an input failed."""
    program, libfuzzer = native_targets.build()
    command, environment = native_targets.command(program, name, seconds, libfuzzer=libfuzzer)
    return _run(name, command, environment, seconds)


def fuzz_python(name: str, seconds: int) -> str:
    """As `fuzz_native`."""
    return _run(name, [sys.executable, "-m", "tests.fuzz.fuzz_one", name, str(seconds)], None, seconds)


def _run(name: str, command: Sequence[str], environment: dict[str, str] | None, seconds: int) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=seconds + 600, errors="replace", check=False
    )
    output = done.stdout + done.stderr
    if done.returncode != 0:
        raise RuntimeError(f"{name} failed ({done.returncode}):\n{output[-6000:]}")
    executions = [next(filter(None, found)) for found in _EXECUTIONS.findall(output)]
    coverage = _COVERAGE.findall(output)
    shown = f", {coverage[-1][0]} edges" if coverage else ""
    return f"{name}: {int(executions[-1]) if executions else 0:,} executions in {seconds} s{shown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("targets", nargs="*", help=f"of {', '.join((*native_targets.NAMES, *TARGETS))}; all by default")
    arguments = parser.parse_args()
    for name in arguments.targets or (*native_targets.NAMES, *TARGETS):
        fuzz = fuzz_native if name in native_targets.NAMES else fuzz_python
        print(fuzz(name, arguments.seconds), flush=True)


if __name__ == "__main__":
    main()
