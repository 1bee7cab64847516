"""Section F of the field cases, rows on their way to the ranks and back: what needs no cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.field_cases.case_workers import Collective, Shard, TensorParallel
from tests.field_cases.forked_group import ForkedGroup
from tests.support.sessions import embedded
from transferqueue import BatchMeta, GRPOGroupNSampler, TransferQueueClient
from transferqueue.controller import LocalWorkerGroup

pytestmark = pytest.mark.timeout(120)

METHODS = ["over_ranks", "over_mesh"]


@pytest.fixture(scope="module")
def collective_ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedGroup]:
    """DP 4 x TP 2 over gloo. Forked before there is a session: a rank attaches when metadata reaches it."""
    meeting: Path = tmp_path_factory.mktemp("ranks") / "rendezvous"
    with ForkedGroup(Collective, 8, {"FIELD_CASE_RENDEZVOUS": f"file://{meeting}"}) as group:
        yield group


@pytest.fixture(scope="module")
def session(collective_ranks: ForkedGroup) -> Iterator[tq.Session]:
    with embedded(None, **{"controller.sampler": GRPOGroupNSampler(8), "controller.polling_mode": True}) as found:
        yield found


@pytest.fixture
def client(session: tq.Session) -> Iterator[TransferQueueClient]:
    found = tq.get_client()
    yield found
    for partition in found.get_partition_list():
        found.clear_partition(partition)


def rows_of(client: TransferQueueClient, rows: int, **more: Any) -> BatchMeta:
    return client.put(TensorDict({"x": torch.arange(rows), **more}, [rows]), partition_id="train")


def column(client: TransferQueueClient, meta: BatchMeta, name: str) -> Any:
    return client.get_data(meta, fields=[name])[name].tolist()


def seen(group: LocalWorkerGroup) -> list[list[int]]:
    """Which rows each rank got in the last call."""
    return [worker.seen[-1] for worker in group.workers]


@pytest.mark.parametrize("method", METHODS)
def test_field_case_96_rows_that_do_not_divide_by_the_ranks(client: TransferQueueClient, method: str) -> None:
    group = LocalWorkerGroup(Shard, 4)
    meta = rows_of(client, 10)
    result = getattr(group, method)(meta)
    assert seen(group) == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    assert result.global_indexes == meta.global_indexes
    assert column(client, result, "y") == list(range(1, 11))


@pytest.mark.parametrize("method", METHODS)
def test_field_case_98_pads_run_and_are_dropped_and_never_stored(client: TransferQueueClient, method: str) -> None:
    group = LocalWorkerGroup(Shard, 4)
    meta = rows_of(client, 7)
    result = getattr(group, f"padded_{method}")(meta)
    assert seen(group) == [[0, 1], [2, 3], [4, 5], [6, 6]], "the pad runs"
    assert (result.size, result.num_padding, meta.size) == (7, 0, 7)
    assert result.global_indexes == meta.global_indexes
    assert column(client, result, "y") == list(range(1, 8))
    assert client.get_meta(["x"], 0, "train", mode="force_fetch").size == 7, "no row more than before"
    by_value = getattr(group, f"padded_{method}")(TensorDict({"x": torch.arange(7)}, [7]))
    assert by_value["y"].tolist() == list(range(1, 8))


@pytest.mark.parametrize("count", [2, 1])
def test_field_case_100_fewer_rows_than_ranks_with_collectives(
    collective_ranks: ForkedGroup, client: TransferQueueClient, count: int
) -> None:
    meta = rows_of(client, count)
    result = collective_ranks.sum_over_replica(meta)
    assert result.global_indexes == meta.global_indexes
    assert column(client, result, "y") == [2 * n for n in range(count)], "each row summed over its replica's two ranks"
    assert result.extra_info == {"ranks_in_the_call": 8}, "ranks without rows took part"


def test_field_case_103_tensor_parallel_ranks_are_no_shards(client: TransferQueueClient) -> None:
    group = LocalWorkerGroup(TensorParallel, 4)
    result = group.over_mesh(rows_of(client, 2))
    assert seen(group) == [[0], [0], [1], [1]], "split in 2, not in 4"
    assert column(client, result, "y") == [1, 2]


@pytest.mark.parametrize("method", METHODS)
def test_field_case_104_rows_keep_their_order_unless_reordered(client: TransferQueueClient, method: str) -> None:
    group = LocalWorkerGroup(Shard, 2)
    lengths = [4096, 4096, 1, 1, 1, 1]  # a balancer would not leave these as they are
    tokens = torch.nested.nested_tensor([torch.zeros(n) for n in lengths], layout=torch.jagged)
    meta = rows_of(client, 6, tokens=tokens)
    result = getattr(group, method)(meta)
    assert seen(group) == [[0, 1, 2], [3, 4, 5]]
    assert result.global_indexes == meta.global_indexes
    meta.reorder([0, 2, 3, 1, 4, 5])  # what a trainer does that balances
    result = getattr(group, method)(meta)
    assert seen(group) == [[0, 2, 3], [1, 4, 5]]
    assert result.global_indexes == meta.global_indexes
    assert column(client, result, "y") == [1, 3, 4, 2, 5, 6]


def test_field_case_110_a_prompt_with_none_one_or_three_trajectories(client: TransferQueueClient) -> None:
    group = LocalWorkerGroup(Shard, 2)
    counts = [0, 3, 1, 3]
    prompts = rows_of(client, 4, count=torch.tensor(counts))
    indexes = TensorDict({"index": torch.tensor(prompts.global_indexes)}, [4])
    prompts = client.put(indexes, metadata=prompts)
    made = group.roll_out(prompts)
    assert made.size == sum(counts)
    assert len(set(made.global_indexes)) == made.size
    assert not set(made.global_indexes) & set(prompts.global_indexes), "new rows, not the prompt's"
    found = client.get_data(made)
    expected = [row for row, count in enumerate(counts) for _ in range(count)]
    assert found["prompt_index"].tolist() == [prompts.global_indexes[row] for row in expected]
    assert found["response"].tolist() == [10 * row for row in expected]
    assert client.get_meta(["response"], 0, "trajectories", mode="force_fetch").size == sum(counts)
    assert column(client, prompts, "x") == [0, 1, 2, 3], "the prompts are as they were"


def test_field_case_111_a_group_put_row_by_row_is_seen_when_complete(client: TransferQueueClient) -> None:
    groups = client.get_meta(["response"], 16, "rollouts", mode="insert")
    first, second = groups.chunk(2)

    def read() -> list[int]:
        found = client.get_meta(["response"], 8, "rollouts", task_name="trainer")
        return list(found.global_indexes)

    for row in range(8):
        for group in (first, second)[: 2 if row < 7 else 1]:
            client.put(TensorDict({"response": torch.full((1,), row)}, [1]), metadata=group.select_samples([row]))
        if row < 7:
            assert read() == []
    assert read() == first.global_indexes
    assert read() == []
    client.put(TensorDict({"response": torch.full((1,), 7)}, [1]), metadata=second.select_samples([7]))
    assert read() == second.global_indexes
