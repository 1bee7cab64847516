"""Fuzzes one Python target: ``python -m tests.fuzz.fuzz_one TARGET SECONDS [CORPUS]``.

With atheris (coverage of our modules guides it), where it is installed; else by mutation of the seeds alone. An
input that fails is kept as ``fuzz-TARGET-...`` in the working directory's ``build/fuzz``.
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

from tests.fuzz.edits import Mutator
from tests.fuzz.targets import Target, target

KEPT = Path("build/fuzz")


def with_atheris(name: str, seconds: int, corpus: Path) -> None:
    """Does not return: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["transferqueue"], enable_loader_override=False):
        chosen = target(name)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(chosen.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [f"-max_total_time={seconds}", "-max_len=512", "-rss_limit_mb=8192", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={KEPT}/fuzz-{name}-", str(corpus)], chosen.run)
    atheris.Fuzz()


def without(chosen: Target, seconds: float, *, seed: int = 1) -> int:
    """Runs seeds and mutations of them; returns how many inputs were run. An input that fails is kept."""
    mutator, executions = Mutator(seed), 0
    until = time.monotonic() + seconds
    pool = list(chosen.seeds)
    while executions < len(pool) or time.monotonic() < until:
        data = pool[executions] if executions < len(pool) else mutator.next(pool)
        executions += 1
        try:
            chosen.run(data)
        except BaseException:
            KEPT.mkdir(parents=True, exist_ok=True)
            path = KEPT / f"fuzz-{chosen.name}-{hashlib.sha1(data).hexdigest()[:12]}"
            path.write_bytes(data)
            print(f"{chosen.name}: input kept in {path}", file=sys.stderr)
            raise
    return executions


def main() -> None:
    name, seconds = sys.argv[1], int(sys.argv[2])
    KEPT.mkdir(parents=True, exist_ok=True)
    try:
        import atheris  # noqa: F401
    except ImportError:
        print(f"{name}: no atheris here, mutating the seeds without coverage")
        print(f"{name}: {without(target(name), seconds, seed=time.time_ns())} executions")
        return
    with_atheris(name, seconds, Path(sys.argv[3]) if len(sys.argv) > 3 else KEPT / "corpus" / name)


if __name__ == "__main__":
    main()
