"""Pools on placement groups that exist already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from transferqueue.controller.errors import InsufficientResourcesError
from transferqueue.controller.pools.bundle import Bundle
from transferqueue.controller.pools.cluster_nodes import address_order, amounts
from transferqueue.controller.pools.placement import placement_states, places_of
from transferqueue.controller.pools.pool_request import PoolRequest
from transferqueue.controller.pools.resource_pool import ResourcePool
from transferqueue.workers.ray_runtime import require_ray

if TYPE_CHECKING:
    from transferqueue.controller.pools.ray_resource_pool import RayResourcePool


def existing_request(
    groups: Sequence[Any],
    process_on_nodes: Sequence[int] | None,
    *,
    name: str | None,
    use_gpu: bool | None,
    max_colocate_count: int | None,
    adopt: bool,
    detached: bool,
    timeout_s: float,
) -> PoolRequest:
    """What a pool on `groups` is: see `RayResourcePool.from_placement_groups`."""
    ray = require_ray("RayResourcePool")
    found = [ray.util.get_placement_group(group) if isinstance(group, str) else group for group in groups]
    if not found or len({group.id for group in found}) < len(found):
        raise ValueError(f"a pool needs placement groups, each of them once; got {[_name(group) for group in found]}")
    states = placement_states(found)
    gone = [_name(group) for group, state in zip(found, states, strict=True) if state == "REMOVED"]
    if gone:
        raise ValueError(f"placement groups {gone} were removed: their room is gone")
    there = [len(group.bundle_specs) for group in found]
    counts = ResourcePool(there if process_on_nodes is None else process_on_nodes).store
    if len(counts) != len(there) or any(count > have for count, have in zip(counts, there, strict=True)):
        raise ValueError(f"process_on_nodes={counts} does not fit placement groups of {there} bundles")
    bundle = Bundle.of_resources(_equal_bundle(found, counts), max_colocate_count)
    if use_gpu and bundle.device is None:
        raise ValueError("use_gpu is True, and the bundles of these placement groups have no accelerator")
    if use_gpu is False:
        bundle = bundle.without_device()
    return PoolRequest(
        name=name or _name(found[0]),
        counts=counts,
        max_colocate_count=bundle.max_colocate_count,
        use_gpu=bundle.device is not None,
        device_name=None,
        accelerator_type=None,
        further=bundle.further,
        detached=detached,
        timeout_s=timeout_s,
        existing=tuple(found),
        adopted=adopt,
        existing_bundle=bundle,
    )


def sort_placement_group_by_node_ip(pgs: Iterable[Any]) -> list[Any]:
    """Placement groups that are ready, by the address of the node of their first bundle."""
    return sorted(pgs, key=lambda group: address_order(places_of(group)[0].node_ip))


def extract_pg_from_exist(
    resource_pools: Mapping[str, RayResourcePool], src_role_names: Iterable[str], resource_pool: ResourcePool
) -> list[Any]:
    """Placement groups of the named pools that have room for the entries of `resource_pool`, in the order of these.

    The largest entry gets the largest placement group. `InsufficientResourcesError` where one is too small.
    """
    names = set(src_role_names)
    groups = [group for name, pool in resource_pools.items() if name in names for group in pool.get_placement_groups()]
    groups.sort(key=lambda group: group.bundle_count, reverse=True)
    wanted = sorted(enumerate(resource_pool.store), key=lambda entry: entry[1], reverse=True)
    if len(groups) < len(wanted) or any(g.bundle_count < n for g, (_, n) in zip(groups, wanted, strict=False)):
        have = [group.bundle_count for group in groups]
        raise InsufficientResourcesError(
            f"a pool of {resource_pool.store} bundles per node does not fit the placement groups of {sorted(names)}, "
            f"which have {have} bundles"
        )
    chosen = {entry: group for (entry, _), group in zip(wanted, groups, strict=False)}
    return [chosen[entry] for entry in sorted(chosen)]


def _equal_bundle(groups: Sequence[Any], counts: Sequence[int]) -> Mapping[str, float]:
    bundles = [bundle for group, count in zip(groups, counts, strict=True) for bundle in group.bundle_specs[:count]]
    for bundle in bundles:
        if bundle != bundles[0]:
            shown = " and ".join(amounts(one, one) for one in (bundles[0], bundle))
            raise ValueError(f"the bundles of a pool must be equal, as its ranks are; these differ: {shown}")
    return dict(bundles[0])


def _name(group: Any) -> str:
    table = require_ray("RayResourcePool").util.placement_group_table(group)
    return str(table.get("name") or group.id.hex())
