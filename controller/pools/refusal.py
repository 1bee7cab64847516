"""The error for room that is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transferqueue.controller.errors import InsufficientResourcesError
from transferqueue.controller.pools.cluster_nodes import ClusterNode, amounts
from transferqueue.controller.pools.feasibility import bundles_of_room
from transferqueue.controller.pools.plan import Plan


def too_little(plans: Sequence[Plan], what: str, nodes: Sequence[ClusterNode]) -> InsufficientResourcesError:
    """What was asked, what each node has, what to do; `what` says why that is too little."""
    wanted: dict[str, float] = {}
    for plan in plans:
        for name, amount in plan.bundle.resources().items():
            wanted[name] = wanted.get(name, 0.0) + amount * sum(plan.ranks_per_node)
    present = {name: sum(node.present.get(name, 0.0) for node in nodes) for name in wanted}
    by_node = tuple(node.amounts(wanted) for node in nodes)
    asked = "; ".join(str(plan) for plan in plans) + (" together" if len(plans) > 1 else "")
    return InsufficientResourcesError(
        f"{asked} {what}: wanted {amounts(wanted, wanted)}; in the cluster {amounts(present, wanted)}; nodes "
        f"{'; '.join(by_node) or 'none'}. {_advice(plans, wanted, present, nodes)}",
        wanted=wanted,
        present=present,
        nodes=by_node,
    )


def _advice(
    plans: Sequence[Plan], wanted: Mapping[str, float], present: Mapping[str, float], nodes: Sequence[ClusterNode]
) -> str:
    for plan in plans:
        device = plan.bundle.device
        if device is not None and not present[device]:
            return f"The cluster has no {device}: RayResourcePool(..., use_gpu=False) asks for CPUs only"
    short = [name for name in wanted if wanted[name] > present[name]]
    if short == ["CPU"] and any(plan.bundle.cpus > 1 for plan in plans):
        return (
            "A bundle has a CPU for each group that may share it: where fewer groups do, "
            "RayResourcePool(..., max_colocate_count=1) asks for less"
        )
    largest = max((demand for plan in plans for demand in plan.demands()), key=lambda demand: demand.bundles)
    rooms = [bundles_of_room(node.present, largest.bundle) for node in nodes]
    if not short and largest.on_one_node and largest.bundles > max(rooms, default=0):
        return (
            f"Entry {largest.entry} of pool {largest.pool!r} wants {largest.bundles} bundles on one node; the nodes "
            f"have room for {', '.join(map(str, rooms))}: name smaller entries, or spread them with bin_pack=False"
        )
    return "Ask for fewer ranks, or shut down what holds the rest"
