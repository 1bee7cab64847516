"""Placement groups: room on nodes, reserved before any actor starts."""

from __future__ import annotations

import gc
import ipaddress
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from transferqueue.controller.errors import InsufficientResourcesError
from transferqueue.controller.pools.rank_place import RankPlace
from transferqueue.workers.ray_runtime import require_ray


def place_ranks(
    ranks_per_node: Sequence[int], bundle: Mapping[str, float], *, strategy: str, name: str, timeout_s: float
) -> list[list[RankPlace]]:
    """One placement group per entry of `ranks_per_node`, with one bundle per rank; ordered by node address.

    The order makes ranks stable: the same nodes give the same ranks, whatever order Ray places in.

    Raises `InsufficientResourcesError`: at once where the cluster is too small however empty, after `timeout_s` where
    the room is taken by others. Nothing stays reserved then.
    """
    ray = require_ray("RayResourcePool")
    check_fits(ranks_per_node, bundle, strategy)
    groups: list[Any] = []
    try:
        for entry, ranks in enumerate(ranks_per_node):
            groups.append(
                ray.util.placement_group(
                    [dict(bundle)] * ranks, strategy=strategy, name=f"{name}_{entry}_{uuid.uuid4().hex[:8]}"
                )
            )
        deadline_s = time.monotonic() + timeout_s
        for group in groups:
            if not _is_ready(group, deadline_s):
                raise _too_little(ranks_per_node, bundle, f"was not free within {timeout_s:g} s")
        placed = [_places(group) for group in groups]
    except BaseException:
        remove_groups(groups)
        raise
    return sorted(placed, key=lambda places: _address_order(places[0].node_ip))


def _is_ready(group: Any, deadline_s: float) -> bool:
    # wait() takes whole seconds and asks at least once.
    if group.wait(timeout_seconds=1):
        return True
    gc.collect()  # the room may be that of a group which the program dropped as part of a reference cycle
    return bool(group.wait(timeout_seconds=max(1, round(deadline_s - time.monotonic()))))


def remove_groups(groups: Sequence[Any]) -> None:
    """Gives the room back; quiet when the cluster is gone."""
    ray = require_ray("RayResourcePool")
    if not ray.is_initialized():
        return
    for group in groups:
        ray.util.remove_placement_group(group)


def check_fits(ranks_per_node: Sequence[int], bundle: Mapping[str, float], strategy: str) -> None:
    """Raises `InsufficientResourcesError` when the cluster, empty, has no room for these ranks."""
    room = [_ranks_of_room(node["Resources"], bundle) for node in _alive_nodes()]
    fits = sum(ranks_per_node) <= sum(room)
    if strategy == "STRICT_PACK":  # an entry must lie on one node
        fits = fits and max(ranks_per_node) <= max(room, default=0)
    if not fits:
        raise _too_little(ranks_per_node, bundle, "is more than the cluster has")


def _too_little(ranks_per_node: Sequence[int], bundle: Mapping[str, float], what: str) -> InsufficientResourcesError:
    ray = require_ray("RayResourcePool")
    ranks = sum(ranks_per_node)
    wanted = {name: amount * ranks for name, amount in bundle.items()}
    present, free = ray.cluster_resources(), ray.available_resources()
    nodes = tuple(f"{node['NodeManagerAddress']}: {_amounts(node['Resources'], bundle)}" for node in _alive_nodes())
    advice = "Ask for fewer ranks, or shut down what holds the rest"
    if bundle.get("CPU", 0.0) > 1 and present.get("CPU", 0.0) >= ranks:
        advice = (
            f"A bundle has as many CPUs as groups may share it ({bundle['CPU']:g}): a pool for fewer groups, "
            "RayResourcePool(..., max_colocate_count=1), asks for less"
        )
    if "GPU" in bundle and not present.get("GPU"):
        advice = "The cluster has no GPU: RayResourcePool(..., use_gpu=False) asks for CPUs only"
    return InsufficientResourcesError(
        f"a pool of {list(ranks_per_node)} ranks per node, each with {_amounts(bundle, bundle)}, {what}: wanted "
        f"{_amounts(wanted, bundle)}; in the cluster {_amounts(present, bundle)}, free now {_amounts(free, bundle)}; "
        f"nodes {'; '.join(nodes) or 'none'}. {advice}",
        wanted=wanted,
        present={name: present.get(name, 0.0) for name in bundle},
        nodes=nodes,
    )


def _alive_nodes() -> list[dict[str, Any]]:
    return [node for node in require_ray("RayResourcePool").nodes() if node["Alive"]]


def _ranks_of_room(resources: Mapping[str, float], bundle: Mapping[str, float]) -> int:
    return min(int(resources.get(name, 0.0) / amount + 1e-9) for name, amount in bundle.items() if amount > 0)


def _amounts(resources: Mapping[str, float], names: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {resources.get(name, 0.0):g}" for name in names)


def _places(group: Any) -> list[RankPlace]:
    ray = require_ray("RayResourcePool")
    addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
    nodes = ray.util.placement_group_table(group)["bundles_to_node_id"]
    return [RankPlace(group, index, nodes[index], addresses[nodes[index]]) for index in sorted(nodes)]


def _address_order(address: str) -> tuple[int, int, str]:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # a host name
        return (9, 0, address)
    return (parsed.version, int(parsed), "")
