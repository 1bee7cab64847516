"""Placement groups: room on nodes, reserved before any actor starts."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from transferqueue.controller.pools.cluster_nodes import address_order, cluster_nodes
from transferqueue.controller.pools.feasibility import can_fit
from transferqueue.controller.pools.orphans import with_maker
from transferqueue.controller.pools.placement_wait import wait_until_ready
from transferqueue.controller.pools.plan import Plan
from transferqueue.controller.pools.rank_place import RankPlace
from transferqueue.controller.pools.refusal import too_little
from transferqueue.workers.ray_runtime import require_ray


def place_ranks(plan: Plan, timeout_s: float) -> list[list[RankPlace]]:
    """Reserves one placement group per entry of the plan; what each rank got, ordered by node address.

    The order makes ranks stable: the same nodes give the same ranks, whatever order Ray places in. Entries on one
    address keep the order of the plan.

    Raises `InsufficientResourcesError`: at once where the cluster is too small however empty, after `timeout_s` where
    the room is taken by others. Nothing stays reserved then.
    """
    ray = require_ray("RayResourcePool")
    check_fits([plan])
    groups: list[Any] = []
    try:
        for entry, ranks in enumerate(plan.ranks_per_node):
            name = f"{plan.pool}_{entry}_{uuid.uuid4().hex[:8]}"
            groups.append(
                ray.util.placement_group(
                    [plan.bundle.resources() for _ in range(ranks)],
                    strategy=plan.strategy,
                    name=name if plan.lifetime else with_maker(name),
                    lifetime=plan.lifetime,
                )
            )
        wait_until_ready(plan, groups, timeout_s)
        placed = [places_of(group) for group in groups]
    except BaseException:
        remove_groups(groups)
        raise
    return sorted(placed, key=lambda places: address_order(places[0].node_ip))


def places_of(group: Any) -> list[RankPlace]:
    """The bundles of a placement group that is ready, by node address where they lie on several nodes."""
    places = _bundles(group)
    # Nodes of one address (several on one machine) still keep their bundles together.
    first = {place.node_id: place.bundle_index for place in reversed(places)}
    return sorted(places, key=lambda place: (address_order(place.node_ip), first[place.node_id], place.bundle_index))


def moved(places: Sequence[RankPlace]) -> list[RankPlace]:
    """The same bundles of one placement group, in the same order, on the nodes where they are now."""
    now = {place.bundle_index: place for place in _bundles(places[0].placement_group)}
    return [now[place.bundle_index] for place in places]


def placement_states(groups: Sequence[Any]) -> list[str]:
    """Ray's state of each placement group; ``"REMOVED"`` also for one that the cluster does not know."""
    table = require_ray("RayResourcePool").util.placement_group_table()
    return [table.get(group.id.hex(), {}).get("state", "REMOVED") for group in groups]


def _bundles(group: Any) -> list[RankPlace]:
    ray = require_ray("RayResourcePool")
    addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
    nodes = ray.util.placement_group_table(group)["bundles_to_node_id"]
    return [RankPlace(group, index, nodes[index], addresses[nodes[index]]) for index in sorted(nodes)]


def remove_groups(groups: Iterable[Any]) -> None:
    """Gives the room back; quiet when the cluster is gone."""
    ray = require_ray("RayResourcePool")
    if not ray.is_initialized():
        return
    for group in groups:
        ray.util.remove_placement_group(group)


def check_fits(plans: Sequence[Plan]) -> None:
    """Raises `InsufficientResourcesError` when the cluster, empty, has no room for all plans at the same time."""
    nodes = cluster_nodes()
    if not can_fit([demand for plan in plans for demand in plan.demands()], [node.present for node in nodes]):
        raise too_little(plans, "is more than the cluster has", nodes)
