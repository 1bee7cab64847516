"""Runs the models of this folder with spin: each as it is, and each of its mutants.

A model is translated and compiled once; which mutant it plays is read from the environment when it runs, so that the
mutants cost no further compilation. The head of a model names them: ``MUTANT 3 no_recheck: what is left out``.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
BUILT = FOLDER.parents[1] / "build" / "models"
# A model that would need more is no test for every day.
MEMORY_MIB = 600
_MUTANT = re.compile(r"^\s*MUTANT (\d+) (\w+):", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """What an exhaustive search found.

    Attributes:
        errors: how many violations it stopped at (0 or 1).
        states: how many states it stored.
        first: the first violation, in spin's words.
        output: everything that was printed.
    """

    errors: int
    states: int
    first: str
    output: str


def models() -> list[str]:
    """Names of the models."""
    return sorted(path.stem for path in FOLDER.glob("*.pml"))


def mutants(model: str) -> dict[str, int]:
    """Name and number of each mutant of a model."""
    return {name: int(number) for number, name in _MUTANT.findall((FOLDER / f"{model}.pml").read_text())}


def build(model: str) -> Path:
    """The verifier of a model; made again when the model changed."""
    for tool, package in (("spin", "spin"), ("gcc", "gcc")):
        assert shutil.which(tool), f"{tool} is not installed: apt-get install {package} (make test does it)"
    source = FOLDER / f"{model}.pml"
    folder = BUILT / f"{model}-{hashlib.sha256(source.read_bytes()).hexdigest()[:16]}"
    verifier = folder / "pan"
    if verifier.exists():
        return verifier
    for stale in BUILT.glob(f"{model}-*"):
        shutil.rmtree(stale, ignore_errors=True)
    folder.mkdir(parents=True)
    _run(["spin", "-a", str(source)], folder)
    # -DSAFETY: assertions only; what should come about in the end is asserted when nothing can move any more.
    flags = ["-O1", "-w", "-DSAFETY", f"-DMEMLIM={MEMORY_MIB}"]
    _run(["gcc", *flags, "-o", "pan.new", "pan.c"], folder)
    (folder / "pan.new").rename(verifier)
    return verifier


def check(model: str, mutant: int = 0) -> Verdict:
    """Searches every state of a model, or of a mutant until its first violation."""
    verifier = build(model)
    # -E: processes that a model kills, or that wait for ever, are no error by themselves.
    command = [str(verifier), "-E", "-n", "-m100000", "-w21"]
    done = subprocess.run(
        command,
        cwd=verifier.parent,
        env={**os.environ, "TQ_MUTANT": str(mutant)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = re.search(r"errors: (\d+)", done.stdout)
    stored = re.search(r"(\d+) states, stored", done.stdout)
    assert found, f"{model}: the search did not end:\n{done.stdout[-2000:]}{done.stderr}"
    assert stored, f"{model}: no count of states:\n{done.stdout[-2000:]}"
    assert "Search not completed" not in done.stdout or int(found[1]), done.stdout[-2000:]
    first = next((line for line in done.stdout.splitlines() if line.startswith("pan:1:")), "")
    return Verdict(int(found[1]), int(stored[1]), first, done.stdout)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}{done.stderr}"
