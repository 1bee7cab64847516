"""Rows handed to consumers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.threads import run_together
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)


def put(client: TransferQueueClient, rows: int, *fields: str, partition: str = "p") -> tq.BatchMeta:
    return client.put(
        TensorDict({name: torch.arange(rows) for name in fields or ("x",)}, [rows]), partition_id=partition
    )


def fetch(
    client: TransferQueueClient, rows: int, task: str = "t", fields: Sequence[str] = ("x",), **options: Any
) -> Any:
    return client.get_meta(list(fields), rows, "p", task_name=task, polling_mode=True, **options).global_indexes


def test_tasks_consume_independently_and_each_row_once(client: TransferQueueClient) -> None:
    rows = put(client, 4).global_indexes
    assert fetch(client, 2, "A") + fetch(client, 2, "A") == rows
    assert fetch(client, 2, "A") == []
    assert fetch(client, 2, "B") == rows[:2]
    assert client.get_consumption_status("A", "p")[1].tolist() == [1, 1, 1, 1]  # type: ignore[union-attr]
    assert client.get_consumption_status("B", "p")[1].tolist() == [1, 1, 0, 0]  # type: ignore[union-attr]
    assert client.reset_consumption("p", "A")
    assert fetch(client, 4, "A") == rows
    assert client.get_consumption_status("B", "p")[1].tolist() == [1, 1, 0, 0]  # type: ignore[union-attr]
    assert client.reset_consumption("p")
    assert fetch(client, 4, "B") == rows


def test_only_rows_with_all_fields_are_handed_out(client: TransferQueueClient) -> None:
    meta = put(client, 4)
    client.put(TensorDict({"y": torch.arange(2)}, [2]), metadata=meta.select_samples([1, 3]))
    assert fetch(client, 2, fields=["x", "y"]) == [meta.global_indexes[1], meta.global_indexes[3]]
    assert fetch(client, 1, fields=["x", "y"]) == []
    assert fetch(client, 1, fields=["never"]) == []


def test_too_few_rows_wait_or_come_in_part_or_not(client: TransferQueueClient) -> None:
    rows = put(client, 8).global_indexes
    with pytest.raises(tq.TransferTimeoutError, match=r"there are 8\. Wait"):
        client.get_meta("x", 100, "p", task_name="t", timeout=0.2)
    assert client.get_meta("x", 100, "p", task_name="t", polling_mode=True).size == 0
    assert client.check_consumption_status("t", "p") is False
    part = client.get_meta("x", 100, "p", task_name="t", partial=True)
    assert part.global_indexes == rows
    assert client.check_consumption_status("t", "p") is True
    with pytest.raises(tq.TransferTimeoutError, match="there are 0 and 8 that it has consumed") as none:
        client.get_meta("x", 1, "p", task_name="t", partial=True, timeout=0)
    assert "sampler" not in str(none.value), "it was offered nothing"


class Picky(tq.BaseSampler):
    def sample(self, ready_indexes: list[int], batch_size: int, **_: Any) -> tuple[list[int], list[int]]:
        return [], []


def test_a_sampler_that_makes_no_batch_of_enough_rows_is_named(
    client: TransferQueueClient, client_at_home: TransferQueueClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, 4)
    monkeypatch.setattr(client_at_home, "_sampler", Picky)
    with pytest.raises(tq.TransferTimeoutError, match="there are 4, of which the sampler made no batch"):
        client.get_meta("x", 4, "p", task_name="t", timeout=0)


def test_a_balanced_batch_is_split_once_for_all_ranks(
    client: TransferQueueClient, client_at_home: TransferQueueClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampler = tq.SeqlenBalancedSampler(dp_size=2)
    monkeypatch.setattr(client_at_home, "_sampler", lambda: sampler)
    rows = put(client, 8)
    rows.update_custom_meta([{"total_lengths": length} for length in (900, 800, 7, 6, 50, 40, 3, 2)])
    client.set_custom_meta(rows)

    def ask(dp_rank: int, batch_index: int) -> list[int]:
        config = {"dp_rank": dp_rank, "batch_index": batch_index, "task_name": "t", "partition_id": "p"}
        return [rows.global_indexes.index(row) for row in fetch(client, 2, sampling_config=config)]

    assert ask(0, 0) == [0, 3]
    assert client.get_consumption_status("t", "p")[1].tolist() == [1, 0, 0, 1, 0, 0, 0, 0]  # type: ignore[union-attr]
    assert ask(1, 1) == [5, 6], "the rows kept for rank 1 of the first batch are nobody else's"
    assert ask(1, 0) == [1, 2]
    assert ask(1, 0) == [1, 2], "asking again repeats"
    assert ask(0, 1) == [4, 7]
    assert client.check_consumption_status("t", "p")
    assert ask(0, 2) == []


def test_ranks_that_ask_again_get_their_rows_again(
    client: TransferQueueClient, client_at_home: TransferQueueClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_at_home, "_sampler", tq.RankAwareSampler)
    rows = put(client, 4).global_indexes
    config = {"batch_index": 0, "task_name": "t", "partition_id": "p"}
    for dp_rank, expected in ((0, rows[:2]), (0, rows[:2]), (1, rows[2:]), (0, rows[:2])):
        assert fetch(client, 2, sampling_config={"dp_rank": dp_rank, **config}) == expected
    client.reset_consumption("p", "t")
    assert fetch(client, 2, sampling_config={"dp_rank": 1, **config}) == rows[:2], "a reset forgets the answers, too"


def test_a_fetch_is_woken_by_the_put_that_completes_it(client: TransferQueueClient) -> None:
    put(client, 2)
    later = threading.Timer(0.2, lambda: put(client, 2))
    later.start()
    meta = client.get_meta("x", 4, "p", task_name="t", timeout=60)
    later.join()
    assert meta.is_ready
    assert client.get_data(meta)["x"].tolist() == [0, 1, 0, 1]


def test_a_fetch_brings_tags_and_types(client: TransferQueueClient) -> None:
    client.kv_batch_put(["a", "b"], "p", TensorDict({"x": torch.zeros(2, 3)}, [2]), [{"score": 1}, {"score": 2}])
    meta = client.get_meta(["x"], 2, "p", task_name="t")
    assert meta.custom_meta == [{"score": 1}, {"score": 2}]
    assert meta.field_schema["x"]["shape"] == (3,)
    assert client.kv_retrieve_keys(meta.global_indexes, "p") == ["a", "b"]


def test_inserted_rows_wait_for_their_data(client: TransferQueueClient) -> None:
    meta = client.get_meta(["x", "y"], 3, "p", mode="insert")
    assert (meta.size, meta.field_names, meta.is_ready) == (3, ["x", "y"], False)
    assert fetch(client, 1) == []
    client.put(TensorDict({"x": torch.arange(3)}, [3]), metadata=meta)
    assert not meta.is_ready
    client.put(TensorDict({"y": torch.arange(3)}, [3]), metadata=meta)
    assert meta.is_ready
    assert fetch(client, 3, fields=["x", "y"]) == meta.global_indexes


def test_force_fetch_gives_all_rows_and_says_which_are_ready(client: TransferQueueClient) -> None:
    first = put(client, 2)
    client.get_meta(["x"], 2, "p", mode="insert")
    meta = client.get_meta(["x"], 0, "p", mode="force_fetch")
    assert meta.size == 4
    assert meta.production_status.tolist() == [1, 1, 0, 0]
    assert meta.global_indexes[:2] == first.global_indexes
    assert fetch(client, 2) == first.global_indexes
    with pytest.raises(tq.PartitionNotFoundError, match="'nowhere'"):
        client.get_meta(["x"], 0, "nowhere", mode="force_fetch")


def test_production_status(client: TransferQueueClient) -> None:
    meta = put(client, 3, "x", "y")
    client.put(TensorDict({"z": torch.arange(1)}, [1]), metadata=meta.select_samples([2]))
    indexes, status = client.get_production_status(["z", "x"], "p")
    assert indexes is not None
    assert status is not None
    assert indexes.tolist() == meta.global_indexes
    assert status.dtype == torch.int8
    assert status.tolist() == [[0, 1], [0, 1], [1, 1]]
    assert client.check_production_status(["x", "y"], "p") is True
    assert client.check_production_status(["x", "z"], "p") is False
    assert client.get_production_status(["x", "unknown"], "p") == (None, None)
    assert client.get_production_status(["x"], "unknown") == (None, None)
    assert client.check_production_status(["x"], "unknown") is False


def test_consumption_status_of_what_is_not_there(client: TransferQueueClient) -> None:
    put(client, 2)
    assert client.get_consumption_status("never ran", "p")[1].tolist() == [0, 0]  # type: ignore[union-attr]
    assert client.get_consumption_status("t", "unknown") == (None, None)
    assert client.check_consumption_status("t", "unknown") is False
    assert client.reset_consumption("unknown") is True
    assert "unknown" not in client.get_partition_list()
    client.kv_put("k", "empty", tag={})
    client.kv_clear("k", "empty")
    assert client.check_consumption_status("t", "empty") is False


def test_cleared_rows_are_not_handed_out_and_their_indexes_not_used_again(client: TransferQueueClient) -> None:
    meta = put(client, 4)
    client.clear_samples(meta.select_samples([0, 1]))
    assert fetch(client, 4, partial=True) == meta.global_indexes[2:]
    again = put(client, 4)
    assert not set(again.global_indexes) & set(meta.global_indexes)


def test_a_row_consumed_and_overwritten_stays_consumed(client: TransferQueueClient) -> None:
    meta = put(client, 2)
    assert len(fetch(client, 2)) == 2
    client.put(TensorDict({"x": torch.arange(2)}, [2]), metadata=meta)
    assert fetch(client, 1) == []


def test_eight_consumers_share_rows_without_overlap(client: TransferQueueClient) -> None:
    rows = put(client, 200).global_indexes

    def consume(_: int) -> list[int]:
        got: list[int] = []
        while part := fetch(client, 5, partial=True):
            got += part
        return got

    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(consume, range(8)))
    assert sorted(index for part in parts for index in part) == rows


def test_custom_meta_is_merged_into_the_rows(client: TransferQueueClient) -> None:
    meta = put(client, 2)
    meta.update_custom_meta([{"length": 3}, {"length": 5}])
    client.set_custom_meta(meta)
    other = client.get_meta(["x"], 0, "p", mode="force_fetch")
    other.update_custom_meta([{"more": 1}, {}])
    client.set_custom_meta(other)
    found = client.get_meta(["x"], 2, "p", task_name="t")
    assert found.custom_meta == [{"length": 3, "more": 1}, {"length": 5}]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mode": "steal"}, "mode must be one of"),
        ({"batch_size": -1}, "batch_size"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"task_name": None}, "task_name"),
        ({"data_fields": []}, "data_fields"),
        ({"data_fields": ["x", "x"]}, "duplicated"),
        ({"timeout": -1}, "timeout"),
    ],
)
def test_wrong_arguments_are_refused_by_name(client: TransferQueueClient, options: dict[str, Any], error: str) -> None:
    put(client, 2)
    arguments = {"data_fields": ["x"], "batch_size": 1, "partition_id": "p", "task_name": "t", **options}
    with pytest.raises(ValueError, match=error):
        client.get_meta(**arguments)
    assert len(fetch(client, 2)) == 2


@pytest.fixture
def cleared_on_the_way(
    client: TransferQueueClient, client_at_home: TransferQueueClient, monkeypatch: pytest.MonkeyPatch
) -> list[tq.BatchMeta]:
    """What is put into this list is cleared by another thread between a call's choice of rows and its description of
    them."""
    victims: list[tq.BatchMeta] = []
    describe = client_at_home._meta_of_rows

    def clear_first(*args: Any) -> tq.BatchMeta:
        while victims:
            run_together(lambda: client.clear_samples(victims.pop()))
        return describe(*args)

    monkeypatch.setattr(client_at_home, "_meta_of_rows", clear_first)
    return victims


def test_rows_cleared_under_a_fetch_are_not_handed_out_and_no_other_is_lost(
    client: TransferQueueClient, cleared_on_the_way: list[tq.BatchMeta]
) -> None:
    meta = put(client, 4)
    rows = meta.global_indexes
    cleared_on_the_way.append(meta[1:2])
    assert fetch(client, 2) == [rows[0], rows[2]]
    assert client.get_consumption_status("t", "p")[1].tolist() == [1, 1, 0]  # type: ignore[union-attr]
    cleared_on_the_way.append(meta[3:4])
    assert fetch(client, 1) == []
    assert client.get_consumption_status("t", "p")[1].tolist() == [1, 1]  # type: ignore[union-attr]


def test_rows_cleared_under_a_look_at_all_rows_are_left_out(
    client: TransferQueueClient, cleared_on_the_way: list[tq.BatchMeta]
) -> None:
    meta = put(client, 3)
    cleared_on_the_way.append(meta[0:2])
    assert client.get_meta("x", 0, "p", mode="force_fetch").global_indexes == meta.global_indexes[2:]
    cleared_on_the_way.append(meta[2:3])
    assert client.get_meta("x", 0, "p", mode="force_fetch").size == 0
