from __future__ import annotations

from transferqueue.controller.pools.cluster_nodes import address_order, amounts


def test_addresses_order_as_numbers() -> None:
    addresses = ["10.0.0.9", "10.0.0.10", "host-b", "::1", "10.0.0.2"]
    assert sorted(addresses, key=address_order) == ["10.0.0.2", "10.0.0.9", "10.0.0.10", "::1", "host-b"]


def test_amounts_say_what_is_free_where_that_is_less() -> None:
    present = {"CPU": 8.0, "GPU": 2.0, "memory": 1e9}
    assert amounts(present, {"CPU": 1.0, "GPU": 1.0, "NPU": 1.0}, {"CPU": 2.5, "GPU": 2.0}) == (
        "CPU 8 (free 2.5), GPU 2, NPU 0"
    )
