"""Writes docs/simulation.md: `python -m bench.simulate.run` (half a minute), with the costs of `bench.simulate.fit`."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

from bench.simulate.costs import COSTS_FILE, Cluster, Costs, Load
from bench.simulate.page import page
from bench.simulate.step import Outcome, simulate
from bench.simulate.systems import CentralStore, Homes, ThroughController

NODES = (2, 4, 8, 16, 32, 64, 128, 256)
SYSTEMS = {
    "homes": Homes,
    "homes, each rank asks": partial(Homes, asking_once=False),
    "homes, all calls of a node joined": partial(Homes, combined=True),
    "homes, a partition over 8 homes": partial(Homes, homes=8),
    "homes, calls joined, controller calls nodes": partial(Homes, combined=True, fan_out=True),
    "central store": CentralStore,
    "through the controller": ThroughController,
}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "simulation.md"


def sweep(costs: Costs, load: Load, nodes: tuple[int, ...] = NODES) -> dict[str, dict[int, Outcome]]:
    """Every system on every size of cluster."""
    return {
        name: {count: simulate(make, Cluster(count), costs, load) for count in nodes} for name, make in SYSTEMS.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=NODES[-1], help="nodes of the largest cluster")
    parser.add_argument("--output", type=Path, default=PAGE)
    arguments = parser.parse_args()
    costs, load = Costs.read(), Load()
    how = json.loads(COSTS_FILE.read_text(encoding="utf-8"))["how"]
    outcomes = sweep(costs, load, tuple(count for count in NODES if count <= arguments.largest))
    arguments.output.write_text(page(costs, how, load, outcomes), encoding="utf-8")
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
