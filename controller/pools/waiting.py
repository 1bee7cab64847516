"""Who waits for what, in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from transferqueue.controller.pools.cluster_nodes import ClusterNode, amounts
from transferqueue.controller.pools.feasibility import Demand, bundles_of_room
from transferqueue.controller.pools.rank_place import RankPlace
from transferqueue.workers.ray_runtime import require_ray

_MAX_HOLDERS = 6


def describe_wait(
    demands: Sequence[Demand], pending: Sequence[int], nodes: Sequence[ClusterNode], own_groups: Collection[Any]
) -> str:
    """Which bundle of which pool waits for what, and which placement groups hold it.

    Args:
        demands: the entries of a pool.
        pending: the numbers of those that are not placed.
        nodes: the cluster.
        own_groups: placement groups of the pool itself, which are not named as holders.
    """
    lines = [_waits(demands[entry], nodes) for entry in pending]
    names = {name for entry in pending for name in demands[entry].bundle}
    holders = _holders(names, {group.id.hex() for group in own_groups})
    return "; ".join(lines) + (f"; held by {holders}" if holders else "")


def describe_bundle_wait(
    pool: str, places: Mapping[int, RankPlace], options: Mapping[str, Any], nodes: Sequence[ClusterNode]
) -> str:
    """Which bundle of `pool` lacks what for an actor with these options; `places` are those of the ranks that wait."""
    wanted = {"CPU": options.get("num_cpus"), "GPU": options.get("num_gpus"), **(options.get("resources") or {})}
    wanted = {name: float(amount) for name, amount in wanted.items() if amount}
    lines = []
    for rank, place in places.items():
        free = next((node.free for node in nodes if node.node_id == place.node_id), {})
        # Ray's names for what a bundle has.
        ending = f"_group_{place.bundle_index}_{place.placement_group.id.hex()}"
        inside = {name: free.get(name + ending, 0.0) for name in wanted}
        text = f"bundle {rank} of pool {pool!r}, on {place.node}, has {amounts(inside, wanted)} free"
        enough = all(inside[name] >= amount for name, amount in wanted.items())
        # Ray takes an actor's share before its process runs: what looks taken may be this very rank's.
        if enough:
            lines.append(f"{text}, which is enough: its process is starting")
        else:
            lines.append(f"{text}: others hold the rest, or the rank itself, whose process is starting")
    return f"each waits for {amounts(wanted, wanted)}; {'; '.join(lines)}"


def _waits(demand: Demand, nodes: Sequence[ClusterNode]) -> str:
    rooms = [(bundles_of_room(node.free, demand.bundle), node) for node in nodes]
    wanted = amounts(demand.bundle, demand.bundle)
    # Ray places all bundles of an entry or none; the first that finds no room is the one that it waits for.
    if demand.on_one_node:
        placed, node = max(rooms, key=lambda room: room[0])
        where = f"on one node; the freest is {node.amounts(demand.bundle)}"
    else:
        placed = sum(count for count, _ in rooms)
        where = f"on any node: {'; '.join(node.amounts(demand.bundle) for _, node in rooms)}"
    bundle = min(placed, demand.bundles - 1)
    fit = "room is free by now" if placed >= demand.bundles else f"{placed} of the entry's {demand.bundles} bundles fit"
    return f"bundle {bundle} of entry {demand.entry} of pool {demand.pool!r} waits for {wanted} {where}: {fit}"


def _holders(names: Collection[str], own: Collection[str]) -> str:
    table: Mapping[str, Mapping[str, Any]] = require_ray("RayResourcePool").util.placement_group_table()
    found = []
    for group_id, group in table.items():
        bundles = list(group["bundles"].values())
        if group["state"] != "CREATED" or group_id in own or not any(name in bundles[0] for name in names):
            continue
        held = {name: sum(bundle.get(name, 0.0) for bundle in bundles) for name in sorted(names)}
        found.append(f"{group['name'] or group_id} ({amounts(held, held)})")
    more = f" and {len(found) - _MAX_HOLDERS} more placement groups" if len(found) > _MAX_HOLDERS else ""
    return ", ".join(found[:_MAX_HOLDERS]) + more
