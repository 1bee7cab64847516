"""The simulator against what can be worked out by hand."""

from __future__ import annotations

from functools import partial

import pytest
import simpy

from bench.simulate.costs import Cluster, Costs, Load
from bench.simulate.machines import Machines
from bench.simulate.page import page
from bench.simulate.step import Outcome, simulate
from bench.simulate.systems import CentralStore, Homes, ThroughController

COSTS = Costs(
    publish_s=1e-3,
    publish_row_s=0.0,
    locate_s=1e-3,
    locate_row_s=0.0,
    call_s=0.0,
    dispatch_s=0.0,
    local_put_s=0.0,
    local_get_s=0.0,
    copy_bytes_s=1e12,
    pull_bytes_s=1e9,
    serve_bytes_s=4e9,
    pickle_bytes_s=1e9,
    unpickle_bytes_s=1e9,
)
NO_COMPUTATION = {"rollout_s": 0.0, "pass_s": 0.0, "update_s": 0.0}


def machines(**cluster: float) -> Machines:
    return Machines(simpy.Environment(), Cluster(2, wire_s=0.0, **cluster), COSTS)  # type: ignore[arg-type]


def test_one_transfer_takes_what_the_server_the_wire_and_the_receiver_take() -> None:
    found = machines(wire_bytes_s=2e9)
    found.env.process(found.transfer(0, 1, 8e6, "agent 0", COSTS.pull_bytes_s))
    found.env.run()
    # Each piece is served (4 GB/s) and then received at 1 GB/s, the wire's share of which overlaps.
    assert found.env.now == pytest.approx(8e6 / 4e9 + 8e6 / 1e9)
    assert found.usage.sent_bytes == {0: 8e6}
    assert found.usage.busy_s["wire out of 0"] == pytest.approx(8e6 / 2e9)


def test_two_transfers_to_one_node_share_its_wire() -> None:
    found = Machines(simpy.Environment(), Cluster(3, wire_s=0.0, wire_bytes_s=1e9), COSTS)
    for source in (0, 1):
        found.env.process(found.transfer(source, 2, 8e6, f"agent {source}", 1e12))
    found.env.run()
    assert found.usage.busy_s["wire into 2"] == pytest.approx(16e6 / 1e9)
    assert found.env.now >= 16e6 / 1e9


def test_calls_of_one_server_wait_for_one_another() -> None:
    found = machines()
    for _ in range(5):
        found.env.process(found.serve("home 0", 1.0))
    found.env.run()
    assert found.env.now == 5.0
    assert found.usage.waited_s["home 0"] == 1 + 2 + 3 + 4


def test_rows_cross_the_wire_once_a_node_and_not_once_a_reader() -> None:
    load = Load(rows=4, puts=1, passes=2, tensor_parallel=4, **NO_COMPUTATION)  # type: ignore[arg-type]
    cluster = Cluster(2, ranks=4)
    ours = simulate(Homes, cluster, COSTS, load)
    # Four rollout ranks on node 0, one replica on node 1: every row once, whatever the passes and the readers.
    assert sum(ours.usage.sent_bytes.values()) == 4 * 4 * load.read_bytes
    central = simulate(CentralStore, cluster, COSTS, load)
    # Every one of four readers in each of three phases has its own.
    assert central.usage.sent_bytes[0] == 3 * 4 * 4 * 4 * load.read_bytes
    assert central.usage.received_bytes[0] == 2 * 4 * 4 * load.scalar_bytes  # written back from node 1, twice


def test_nothing_is_left_in_memory() -> None:
    for make in (Homes, CentralStore):
        outcome = simulate(make, Cluster(4), COSTS, Load())
        assert max(outcome.usage.peak_bytes.values()) > 0
        assert all(abs(nbytes) < 1 for nbytes in outcome.usage.memory_bytes.values())


def test_computation_is_not_counted_as_overhead() -> None:
    outcome = simulate(Homes, Cluster(2), COSTS, Load(rollout_s=50.0))
    assert outcome.compute_s == 50 + 3 * 2 + 8
    assert 0 < outcome.overhead_s < 1


def test_a_home_is_the_bottleneck_of_many_nodes_and_joined_calls_relieve_it() -> None:
    load = Load(**NO_COMPUTATION)  # type: ignore[arg-type]
    plain = simulate(Homes, Cluster(32), COSTS, load)
    assert plain.busiest()[0] == "home 0"
    joined = simulate(partial(Homes, combined=True), Cluster(32), COSTS, load)
    assert joined.usage.busy_s["home 0"] < plain.usage.busy_s["home 0"] / 4
    assert joined.overhead_s < plain.overhead_s


def test_the_page_has_every_system_and_names_the_bottleneck() -> None:
    outcomes: dict[str, dict[int, Outcome]] = {
        name: {2: simulate(make, Cluster(2), COSTS, Load())}  # type: ignore[arg-type]
        for name, make in (("homes", Homes), ("central store", CentralStore), ("controller", ThroughController))
    }
    text = page(COSTS, {"publish_s": "made up"}, Load(), outcomes)
    assert "gives out first is **home 0**" in text
    assert "| publish_s | 1000.00 us | made up |" in text
    assert text.count("| central store |") == 5


@pytest.mark.parametrize(("asking_once", "calls"), [(True, 1), (False, 4)])
def test_ranks_that_read_the_same_ask_once(asking_once: bool, calls: int) -> None:
    found = machines()
    system = Homes(found, asking_once=asking_once)
    for rank in range(4):
        found.env.process(system.get(1, f"rank {rank}", [], rank == 0))
    found.env.run()
    assert found.usage.busy_s["home 0"] == pytest.approx(calls * COSTS.locate_s)
