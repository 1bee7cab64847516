"""What one training step costs beyond this machine, on paper: constants fitted to `step_costs`, a queue for the one
lock, and the first thing that saturates. `docs/scale.md` explains it and holds the table that this prints.

    python -m bench.scale_model --fit bench/results/latest.json    fits, and writes bench/results/scale_constants.json
    python -m bench.scale_model                                    prints the table for those constants
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

CONSTANTS = Path(__file__).resolve().parent / "results" / "scale_constants.json"
Floats = npt.NDArray[np.float64]
_SIMULATED_ARRIVALS = 2_000_000


@dataclass(frozen=True)
class Constants:
    """Microseconds and bytes of this implementation, fitted to measurements. ``X_us + X_row_us * rows + X_field_us *
    fields`` is the cost of one call on so many rows and fields, its copying apart."""

    put_us: float
    put_row_us: float
    put_field_us: float
    get_us: float
    get_row_us: float
    get_field_us: float
    lock_us: float
    lock_row_us: float
    lock_field_us: float
    index_bytes_per_row: float
    fetch_us: float
    fetch_row_us: float
    metadata_bytes: float
    metadata_bytes_row: float
    split_join_row_us: float
    split_join_part_us: float


@dataclass(frozen=True)
class Setup:
    """The cluster and the loop. Assumptions, not measurements: change them for yours.

    Attributes:
        rows_in_flight: rows of one step, all of one partition unless `homes` says more.
        rollout_fields, stages, stage_fields: a row is put with so many fields and gets more of them in each stage.
        rows_per_put: how many finished rows a rollout rank puts at once.
        row_nbytes: payload bytes of a row when the rollout put it; each stage adds `stage_row_nbytes`.
        homes: partitions of the step that have different home nodes.
        step_s: wanted length of a step.
        network_bytes_per_s, copy_bytes_per_s, cores: of one node. Copies count once per byte copied.
        actor_call_us: the controller's own time for one remote call.
        index_bytes: `storage.index_size` of the home node; the default is what a large store gets by itself.
    """

    nodes: int = 128
    ranks_per_node: int = 64
    rows_in_flight: int = 1_000_000
    rollout_fields: int = 20
    stages: int = 5
    stage_fields: int = 4
    rows_per_put: int = 1
    row_nbytes: int = 160_000
    stage_row_nbytes: int = 16_000
    homes: int = 1
    step_s: float = 300.0
    network_bytes_per_s: float = 50e9
    copy_bytes_per_s: float = 20e9
    cores: int = 96
    actor_call_us: float = 120.0
    index_bytes: float = float(256 << 20)

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node


def fit(results: Iterable[Mapping[str, Any]]) -> Constants:
    """Least squares through the points of the `step_costs` measurement in `results` (the raw JSON of `bench.run`).

    Raises:
        ValueError: no such measurement.
    """
    facts = next((item["facts"] for item in results if item["claim"] == "step_costs"), None)
    if facts is None:
        raise ValueError("the results hold no step_costs: run python -m bench.step_costs first")
    found: dict[str, float] = {}
    for verb in ("put", "get", "lock"):
        found |= _fit_plane(verb, facts)
    small, large = facts["step_fetch_us_10000"], facts["step_fetch_us_100000"]
    found["fetch_row_us"] = max(0.0, (large - small) / 90_000)
    found["fetch_us"] = max(0.0, small - 10_000 * found["fetch_row_us"])
    few, many = facts["step_metadata_bytes_scattered_128"], facts["step_metadata_bytes_scattered_8192"]
    found["metadata_bytes_row"] = max(0.0, (many - few) / (8192 - 128))
    found["metadata_bytes"] = max(0.0, few - 128 * found["metadata_bytes_row"])
    points = np.array([[8192.0, 64.0], [32768.0, 1024.0]])
    taken = np.array([facts["step_split_join_us_r8192_p64"], facts["step_split_join_us_r32768_p1024"]])
    per_row, per_part = np.linalg.solve(points, taken)
    found |= {"split_join_row_us": max(0.0, float(per_row)), "split_join_part_us": max(0.0, float(per_part))}
    return Constants(index_bytes_per_row=facts["step_index_bytes_per_row_single_f20"], **found)


def _fit_plane(verb: str, facts: Mapping[str, Any]) -> dict[str, float]:
    """Base, per row, per field; weighted so that every point counts by its relative error."""
    points, values = [], []
    for name, value in facts.items():
        match = re.fullmatch(rf"step_{verb}_us_r(\d+)_f(\d+)", name)
        if match:
            points.append([1.0, float(match[1]), float(match[2])])
            values.append(float(value))
    taken = np.array(values)
    solved, *_ = np.linalg.lstsq(np.array(points) / taken[:, None], np.ones(len(taken)), rcond=None)
    base, row, field = (max(0.0, float(value)) for value in solved)
    return {f"{verb}_us": base, f"{verb}_row_us": row, f"{verb}_field_us": field}


@dataclass(frozen=True)
class Load:
    """One resource in one step: how long it is busy (or how full it is), against what it has."""

    resource: str
    used: float
    available: float
    unit: str

    @property
    def utilisation(self) -> float:
        return self.used / self.available


def loads(constants: Constants, setup: Setup) -> list[Load]:
    """Every resource of one step, the fullest first."""
    c, s = constants, setup
    ranks, rows = s.ranks, s.rows_in_flight
    rows_per_rank = rows / ranks
    rollout_puts, stage_puts = rows / s.rows_per_put, float(s.stages * ranks)
    lock_us = rollout_puts * (c.lock_us + c.lock_row_us * s.rows_per_put + c.lock_field_us * s.rollout_fields)
    lock_us += stage_puts * (c.lock_us + c.lock_row_us * rows_per_rank + c.lock_field_us * s.stage_fields)
    put_us = rollout_puts * (c.put_us + c.put_row_us * s.rows_per_put + c.put_field_us * s.rollout_fields)
    put_us += stage_puts * (c.put_us + c.put_row_us * rows_per_rank + c.put_field_us * s.stage_fields)
    get_us = stage_puts * (c.get_us + c.get_row_us * rows_per_rank + c.get_field_us * s.rollout_fields)
    # The home answers for its rows: every remote resolve costs it what a local one costs a reader.
    home_us = (get_us + lock_us) / s.homes
    metadata = s.stages * (ranks * c.metadata_bytes + rows * c.metadata_bytes_row) * 2  # out and back
    controller_us = s.stages * (
        ranks * s.actor_call_us
        + c.split_join_row_us * rows
        + c.split_join_part_us * ranks
        + c.fetch_us
        + c.fetch_row_us * rows
    )
    row_nbytes = s.row_nbytes + s.stages * s.stage_row_nbytes
    # Rows are dealt out anew once; a block crosses the network once per node. With one node nothing does.
    pulled = rows / s.nodes * row_nbytes * (s.nodes - 1) / s.nodes
    # Written once, gathered once where a rank's rows are scattered, and a pull writes once more.
    copied = 2 * rows / s.nodes * row_nbytes + pulled
    found = [
        Load("write lock of the home index", lock_us / s.homes / 1e6, s.step_s, "s"),
        Load("CPU of the home node", home_us / 1e6, s.step_s * s.cores, "core s"),
        Load("CPU of a node's puts and gets", (put_us + get_us) / s.nodes / 1e6, s.step_s * s.cores, "core s"),
        Load("controller", controller_us / 1e6, s.step_s, "s"),
        Load("metadata through the controller's network", metadata / s.network_bytes_per_s, s.step_s, "s"),
        Load("network of a node", pulled / s.network_bytes_per_s, s.step_s, "s"),
        Load("memory copies of a node", copied / s.copy_bytes_per_s, s.step_s, "s"),
        Load("records in the home index", rollout_puts * _record_nbytes(c) / s.homes, s.index_bytes, "B"),
        Load("leases of a rank", rows_per_rank / s.rows_per_put, float(1 << 20), "leases"),
        Load("blocks of the home node", (rollout_puts + stage_puts) / s.homes, float(1 << 22), "blocks"),
    ]
    return sorted(found, key=lambda load: -load.utilisation)


def _record_nbytes(constants: Constants) -> float:
    """A put is one record whatever its rows, so what a single-row put takes is what a put takes."""
    return constants.index_bytes_per_row


def queue_waits(arrivals: Floats, service_s: float) -> Floats:
    """Seconds that each arrival (ascending times) waits for a lock that serves them one by one, in order.

    The recursion of Lindley (1952), W[n+1] = max(0, W[n] + S - (T[n+1] - T[n])), solved at once: the server is free for
    arrival n at n * S + max over m <= n of (T[m] - m * S).
    """
    numbers = np.arange(len(arrivals)) * service_s
    starts = np.maximum.accumulate(arrivals - numbers) + numbers
    return starts - arrivals


def simulate_lock(constants: Constants, setup: Setup, *, window_s: float, seed: int = 0) -> tuple[float, float]:
    """(p50, p99.9) seconds that a rollout put waits for the home's write lock.

    All rows of the step finish within `window_s`, each rank's at random moments: generation ends in a burst, so the
    window is shorter than the step. Transactions take the fitted mean; of more than two million puts the first ones
    are simulated.
    """
    c, s = constants, setup
    puts = s.rows_in_flight / s.rows_per_put / s.homes
    service_s = (c.lock_us + c.lock_row_us * s.rows_per_put + c.lock_field_us * s.rollout_fields) / 1e6
    simulated = int(min(puts, _SIMULATED_ARRIVALS))
    if simulated < 1:
        return 0.0, 0.0
    cut_s = window_s * simulated / puts
    arrivals = np.sort(np.random.default_rng(seed).uniform(0.0, cut_s, simulated))
    waits = queue_waits(arrivals, service_s)
    return float(np.quantile(waits, 0.5)), float(np.quantile(waits, 0.999))


def table(constants: Constants, setup: Setup) -> str:
    """Markdown: each resource for rows put one by one, by 16 and with 16 homes; then what a put waits for."""
    variants = {
        "rows put one by one": setup,
        "16 rows a put": replace(setup, rows_per_put=16),
        "one by one, 16 homes": replace(setup, homes=16),
        "one by one, index of 4 GiB": replace(setup, index_bytes=float(4 << 30)),
    }
    columns = {name: {load.resource: load for load in loads(constants, given)} for name, given in variants.items()}
    order = [load.resource for load in loads(constants, setup)]
    lines = ["| resource | " + " | ".join(variants) + " |", "|---|" + "---|" * len(variants)]
    for resource in order:
        cells = [f"{found[resource].utilisation:.2%} of {_shown(found[resource])}" for found in columns.values()]
        lines.append(f"| {resource} | " + " | ".join(cells) + " |")
    for window_s in (setup.step_s, setup.step_s / 30, setup.step_s / 60):
        cells = []
        for given in variants.values():
            median_s, late_s = simulate_lock(constants, given, window_s=window_s)
            cells.append(f"p50 {median_s * 1e3:.3g} ms, p99.9 {late_s * 1e3:.3g} ms")
        lines.append(f"| wait for the lock, all rows done within {window_s:.3g} s | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _shown(load: Load) -> str:
    if load.unit == "B":
        return f"{load.available / 2**30:.3g} GiB"
    return f"{load.available:,.0f} {load.unit}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fit", type=Path, help="raw results to fit the constants to; they are written")
    parser.add_argument("--constants", type=Path, default=CONSTANTS)
    defaults = Setup()
    for entry in fields(Setup):
        kind = type(getattr(defaults, entry.name))
        parser.add_argument(f"--{entry.name.replace('_', '-')}", type=kind, default=getattr(defaults, entry.name))
    arguments = parser.parse_args()
    if arguments.fit is not None:
        found = fit(json.loads(arguments.fit.read_text())["results"])
        arguments.constants.write_text(json.dumps(asdict(found), indent=1) + "\n")
    constants = Constants(**json.loads(arguments.constants.read_text()))
    setup = Setup(**{entry.name: getattr(arguments, entry.name) for entry in fields(Setup)})
    print(table(constants, setup))
    return 0


if __name__ == "__main__":
    sys.exit(main())
