"""``locality=`` of a worker group on three nodes: rows are dispatched to the ranks on the node that keeps them. What
crosses the network is counted by the nodes' own metrics."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.contract.nodes import jobs
from tests.contract.nodes.ray_nodes import CPUS, RayNodes, ray_nodes_of
from transferqueue.controller import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
from transferqueue.workers import Dispatch, Worker, register

pytest.importorskip("pyarrow.flight")
pytestmark = [pytest.mark.timeout(400), pytest.mark.soak]
ROWS_A_NODE = 12
ROW_NBYTES = 64 << 10
ROWS = 3 * ROWS_A_NODE


class Reader(Worker):
    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def read(self, batch: TensorDict) -> TensorDict:
        """Touches all bytes, and says which row went where."""
        whole = (batch["values"] == batch["row"][:, None]).all(dim=1)
        return TensorDict(
            {"seen": batch["row"], "rank": torch.full_like(batch["row"], self.rank), "whole": whole}, batch.batch_size
        )


@pytest.fixture(scope="module")
def ray_nodes() -> Iterator[RayNodes]:
    with ray_nodes_of("a", "b", "c") as nodes:
        os.environ.pop("TRANSFERQUEUE_SESSION", None)
        session = tq.init(**{"storage.size": "64MiB", "metrics.port": 0})
        yield nodes
        session.close()


@pytest.fixture(scope="module")
def pool(ray_nodes: RayNodes) -> Iterator[RayResourcePool]:
    """Two ranks on each node: their bundles fill it."""
    made = RayResourcePool([2, 2, 2], use_gpu=False, max_colocate_count=CPUS // 2)
    made.get_placement_groups()
    yield made
    made.remove()


def pulled(ray_nodes: RayNodes) -> int:
    """Bytes of payload that the nodes have pulled from others, by their metrics."""
    return sum(ray_nodes.on(letter, jobs.pulled_nbytes) for letter in "abc")


def dispatched(ray_nodes: RayNodes, pool: RayResourcePool, locality: Any, order: str) -> tuple[int, int]:
    """(rows that ranks read on the node that put them, bytes of payload that crossed the network for it)."""
    kept = [ray_nodes.on(letter, jobs.put_rows, f"{locality} {order}", ROWS_A_NODE) for letter in "abc"]
    with RayWorkerGroup(pool, RayClassWithInitArgs(Reader), locality=locality) as group:
        letters = {ray_nodes.id_of(letter): at for at, letter in enumerate("abc")}
        node_of_rank = [letters[node_id] for node_id in group.node_ids]
        assert sorted(node_of_rank) == [0, 0, 1, 1, 2, 2]
        if order == "in turn":
            wanted = [row for at in range(ROWS_A_NODE) for row in range(at, ROWS, ROWS_A_NODE)]
        else:  # what the ranks of a node get was put by another
            others = [(node_of_rank[rank] + 1) % 3 for rank in (0, 2, 4)]
            wanted = [row for node in others for row in range(node * ROWS_A_NODE, (node + 1) * ROWS_A_NODE)]
        batch = tq.BatchMeta.concat(kept).select_samples(wanted)
        before = pulled(ray_nodes)
        out = group.read(batch)
        nbytes = pulled(ray_nodes) - before
    seen = tq.get_data(out, fields=["seen", "rank", "whole"])
    assert seen["whole"].all()
    assert seen["seen"].tolist() == [row % ROWS_A_NODE for row in wanted], "results are in the order of the batch"
    assert torch.bincount(seen["rank"], minlength=6).tolist() == [ROWS // 6] * 6, "shards are as large as ever"
    put_at = [row // ROWS_A_NODE for row in wanted]
    return sum(node_of_rank[rank] == node for rank, node in zip(seen["rank"].tolist(), put_at, strict=True)), nbytes


@pytest.mark.parametrize("order", ["in turn", "the other way round"])
def test_rows_go_to_the_ranks_on_their_node(ray_nodes: RayNodes, pool: RayResourcePool, order: str) -> None:
    in_turn = order == "in turn"
    local, nbytes = dispatched(ray_nodes, pool, "off", order)
    assert local == (ROWS // 3 if in_turn else 0)
    assert nbytes >= (ROWS - local) * ROW_NBYTES
    local, nbytes = dispatched(ray_nodes, pool, "rows", order)
    assert local == ROWS
    assert nbytes < ROW_NBYTES, "no row of payload"
    local, nbytes = dispatched(ray_nodes, pool, "shards", order)
    assert local == (ROWS // 3 if in_turn else ROWS), "whole shards only"
    assert (nbytes < ROW_NBYTES) == (not in_turn)
