"""`can_fit` against trying everything, on small clusters."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transferqueue.controller.pools.feasibility import Demand, bundles_of_room, can_fit

ROOMS = st.lists(st.fixed_dictionaries({"CPU": st.integers(0, 6), "GPU": st.integers(0, 3)}), max_size=3)
BUNDLES = st.fixed_dictionaries({"CPU": st.integers(1, 3)}, optional={"GPU": st.just(1)})
DEMANDS = st.lists(
    st.builds(Demand, st.just("pool"), st.just(0), st.integers(1, 3), BUNDLES, st.booleans()), min_size=1, max_size=2
)


def fits_somehow(demands: list[Demand], rooms: list[dict[str, int]]) -> bool:
    items = []
    for demand in demands:
        if demand.on_one_node:
            items.append({name: amount * demand.bundles for name, amount in demand.bundle.items()})
        else:
            items += [dict(demand.bundle)] * demand.bundles
    for nodes in product(range(len(rooms)), repeat=len(items)):
        left = [dict(room) for room in rooms]
        for item, node in zip(items, nodes, strict=True):
            for name, amount in item.items():
                left[node][name] -= amount
        if all(amount >= 0 for room in left for amount in room.values()):
            return True
    return False


@settings(max_examples=200, deadline=None)
@given(DEMANDS, ROOMS)
def test_as_trying_everything(demands: list[Demand], rooms: list[dict[str, int]]) -> None:
    assert can_fit(demands, rooms) == fits_somehow(demands, rooms)


@pytest.mark.timeout(30)
def test_large_clusters() -> None:
    bundle = {"CPU": 10.0, "GPU": 1.0}
    nodes = [{"CPU": 96.0, "GPU": 8.0}] * 64
    assert can_fit([Demand("pool", entry, 8, bundle) for entry in range(64)], nodes)
    assert not can_fit([Demand("pool", entry, 8, bundle) for entry in range(65)], nodes)
    assert can_fit([Demand("pool", 0, 512, bundle, on_one_node=False)], nodes)
    # A packing that only an endless search would settle is left to Ray.
    odd = [Demand("pool", entry, 1, {"CPU": 7.0 + entry % 3}) for entry in range(700)]
    assert can_fit(odd, [{"CPU": 88.0}] * 64)


def test_amounts_are_counted_in_rays_steps() -> None:
    assert bundles_of_room({"GPU": 1.0}, {"GPU": 0.1}) == 10
    assert bundles_of_room({"GPU": 1.0}, {"GPU": 0.3333}) == 3
    assert bundles_of_room({"CPU": 8.0}, {"CPU": 1.0, "GPU": 1.0}) == 0
