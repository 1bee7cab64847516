"""`tq bench`: runs the microbenchmarks, prints their table, writes their JSON."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transferqueue.microbench import machine, measures
from transferqueue.microbench.timing import Measured
from transferqueue.own_programs import run_program
from transferqueue.text_table import show_table

_RAY_SWITCH = "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"
_PEER_TIMEOUT_S = 600
HEADER = ["measured", "system", "put ms", "get ms", "put + get", "+ touching every page", ""]


def run(*, rows: int, keys: int, rounds: int, directory: str | None, peers: bool, json_file: str | None) -> int:
    """Measures, prints, writes. Returns the exit status: 1 when a peer that is installed could not be measured.

    Args:
        rows: of W; 512 rows are 67 MB, of which the store and this process hold several.
        keys, rounds: size of the key-value part, repetitions.
        directory: for a file-backed store; None: shared memory.
        peers: whether Ray is measured too, if it is installed.
        json_file: where everything goes, raw seconds included.

    Raises:
        ValueError: a size below 1.
        TransferQueueError: the store cannot be made that large here.
        OSError: `json_file` cannot be written (said before anything is measured).
    """
    for name, value in (("--rows", rows), ("--keys", keys), ("--rounds", rounds)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    if json_file is not None:
        Path(json_file).touch()
    record: dict[str, Any] = {"machine": machine.describe(), "rows": rows, "keys": keys, "rounds": rounds}
    results = [
        *_noted("put and get of W", lambda: [measures.put_get(rows, rounds, directory)]),
        *_noted("small batches", lambda: [measures.small(rounds, directory), measures.single_rows(rounds, directory)]),
        *_noted(f"{keys} keys", lambda: measures.keys(keys, rounds, directory)),
    ]
    shown = [measured.as_json() for measured in results]
    failed = []
    if peers and importlib.util.find_spec("ray") is not None:
        for switch in ("0", "1"):
            try:
                shown.extend(_ray(rows, rounds, switch))
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                failed.append(f"Ray with {_RAY_SWITCH}={switch}")
                print(f"tq bench: {failed[-1]} could not be measured: {error}", file=sys.stderr)
    record |= {"results": shown, "failed": failed}
    show_table(HEADER, table_rows(shown))
    if json_file is not None:
        Path(json_file).write_text(json.dumps(record, indent=1) + "\n")
    return 1 if failed else 0


def _noted(what: str, measure: Callable[[], list[Measured]]) -> list[Measured]:
    began = time.perf_counter()
    found = measure()
    print(f"measured {what} in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return found


def _ray(rows: int, rounds: int, switch: str) -> list[dict[str, Any]]:
    """Ray in a program of its own: it reads its switch when it starts, and the data plane does not import it."""
    # At niceness 15, Ray's default for workers, a busy neighbour would be measured.
    environment = os.environ | {_RAY_SWITCH: switch, "RAY_worker_niceness": "0", "OMP_NUM_THREADS": "1"}
    began = time.perf_counter()
    done = run_program(
        "transferqueue.microbench.ray_peer",
        *("--rows", str(rows), "--rounds", str(rounds)),
        env=environment,
        capture_output=True,
        text=True,
        timeout=_PEER_TIMEOUT_S,
    )
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            print(f"measured Ray, {_RAY_SWITCH}={switch}, in {time.perf_counter() - began:.0f} s", file=sys.stderr)
            found: list[dict[str, Any]] = json.loads(line.removeprefix("RESULT "))
            return found
    raise RuntimeError(f"no result; its last words: {(done.stdout + done.stderr)[-800:]}")


def table_rows(results: list[dict[str, Any]]) -> list[list[str]]:
    """One row a result, measurements together: medians in ms, and ratios to the memcpy of the same run."""
    claims = list(dict.fromkeys(result["claim"] for result in results))
    rows: list[list[str]] = []
    for result in sorted(results, key=lambda result: claims.index(result["claim"])):
        summary, facts = result["summary"], result["facts"]
        if result["claim"] == "put_get_w" and not rows:
            size = f"{result['nbytes'] / 1e6:.0f} MB"
            rows.append([f"memcpy of {size}", "", _ms(summary, "memcpy_ms"), "", "1.0x memcpy", "", ""])
        rows.append(
            [
                result["claim"],
                result["system"],
                _ms(summary, "put_ms"),
                _ms(summary, "get_ms"),
                f"{summary['put_get_ratio']:.2f}x memcpy" if summary.get("put_get_ratio") else "",
                f"{facts['put_get_touch_ratio']:.2f}x memcpy" if "put_get_touch_ratio" in facts else "",
                f"{facts['puts_per_second']:,.0f} /s" if "puts_per_second" in facts else "",
            ]
        )
    return rows


def _ms(summary: dict[str, float], name: str) -> str:
    return f"{summary[name]:.3f}" if summary.get(name) else ""
