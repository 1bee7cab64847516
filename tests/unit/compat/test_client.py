"""Rows by index: put, get_meta, get_data and states, in the words of the surface."""

from __future__ import annotations

import asyncio
import os
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

import transferqueue as native
from transferqueue.compat import transfer_queue as tq
from transferqueue.compat.transfer_queue.client import TransferQueueClient

FIELDS = ["x", "y"]


def batch(rows: int = 3) -> TensorDict:
    return TensorDict({"x": torch.arange(float(rows)), "y": torch.arange(rows * 2).view(rows, 2)}, [rows])


def test_a_put_makes_rows_or_writes_on_them(client: TransferQueueClient) -> None:
    meta = client.put(batch(), partition_id="p")
    assert type(meta) is tq.BatchMeta
    assert meta.is_ready
    assert meta.field_names == FIELDS
    meta.update_custom_meta([{"n": row} for row in range(3)])
    back = client.put(TensorDict({"z": torch.ones(3)}, [3]), meta)
    assert back is meta
    assert meta.field_names == ["x", "y", "z"]
    found = client.get_meta(["z"], 0, "p", mode="force_fetch")
    assert found.custom_meta == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert found.global_indexes == meta.global_indexes


def test_a_put_on_part_of_the_fields_says_ready(client: TransferQueueClient) -> None:
    meta = client.get_meta(FIELDS, 2, "p", mode="insert")
    assert type(meta) is tq.BatchMeta
    assert (meta.size, meta.field_names, meta.production_status.tolist()) == (2, FIELDS, [0, 0])
    assert meta.field_schema["x"]["dtype"] is None
    with pytest.raises(tq.StorageKeyNotFoundError):
        client.get_data(meta)
    client.put(TensorDict({"x": torch.ones(2)}, [2]), meta)
    assert meta.is_ready
    assert client.check_production_status(["x"], "p")
    assert not client.check_production_status(FIELDS, "p")
    with pytest.raises(KeyError, match="'y'"):
        client.get_data(meta)
    # The native face says of the same put what is there.
    rows = native.get_meta(FIELDS, 2, "p", mode="insert")
    assert not native.put(TensorDict({"x": torch.ones(2)}, [2]), rows).is_ready


def test_a_put_is_checked(client: TransferQueueClient) -> None:
    with pytest.raises(ValueError, match="partition_id"):
        client.put(batch())
    with pytest.raises(ValueError):
        client.put(batch(), tq.BatchMeta.empty())
    meta = client.put(batch(), partition_id="p")
    with pytest.raises(ValueError):
        client.put(batch(2), meta)


def test_rows_of_several_partitions_are_written_and_read_in_order(client: TransferQueueClient) -> None:
    pieces = [client.put(batch(rows), partition_id=name) for rows, name in ((2, "p"), (1, "q"))]
    meta = tq.BatchMeta.concat(pieces).select_samples([2, 0, 1])
    meta.update_custom_meta([{"n": row} for row in range(3)])
    client.put(TensorDict({"z": torch.arange(3)}, [3]), meta)
    read = client.get_data(meta)
    assert read["x"].tolist() == [0.0, 0.0, 1.0]
    assert read["z"].tolist() == [0, 1, 2]
    assert [row.tolist() for row in read["y"].unbind()] == [[0, 1], [0, 1], [2, 3]]
    assert client.get_meta(["z"], 0, "q", mode="force_fetch").custom_meta == [{"n": 0}]


def test_empty_metadata_gives_an_empty_batch(client: TransferQueueClient) -> None:
    meta = client.put(batch(), partition_id="p")
    for empty in (tq.BatchMeta.empty(), meta[:0], meta.select_fields([])):
        read = client.get_data(empty)
        assert read.batch_size == (0,)
        assert not list(read.keys())


def test_rows_that_were_cleared(client: TransferQueueClient) -> None:
    meta = client.put(batch(), partition_id="p")
    client.clear_samples(meta[1])
    client.clear_samples(meta[1])
    client.clear_samples(tq.BatchMeta.empty())
    with pytest.raises(tq.StorageKeyNotFoundError, match=str(meta.global_indexes[1])):
        client.get_data(meta)
    # Whatever is put since: an index is never used again.
    client.put(batch(), partition_id="p")
    with pytest.raises(KeyError):
        client.get_data(meta)
    with pytest.raises(RuntimeError, match="StaleMetadataError"):
        client.put(batch(), meta)
    assert client.get_data(meta[0])["x"].tolist() == [0.0]
    client.clear_partition("p")
    client.clear_partition("p")
    assert "p" not in client.get_partition_list()
    assert not client.check_production_status(FIELDS, "p")


def test_states_of_rows(client: TransferQueueClient) -> None:
    meta = client.put(batch(), partition_id="p")
    indexes, ready = client.get_production_status(FIELDS, "p")
    assert indexes is not None
    assert ready is not None
    assert indexes.tolist() == meta.global_indexes
    assert (ready.dtype, ready.tolist()) == (torch.int8, [[1, 1]] * 3)
    assert client.get_production_status(["x", "no"], "p") == (None, None)
    assert client.get_production_status(FIELDS, "no") == (None, None)
    fetched = client.get_meta(FIELDS, 2, "p", task_name="t")
    assert fetched.global_indexes == meta.global_indexes[:2]
    _, consumed = client.get_consumption_status("t", "p")
    _, untouched = client.get_consumption_status("u", "p")
    assert consumed is not None
    assert untouched is not None
    assert (consumed.tolist(), untouched.tolist()) == ([1, 1, 0], [0, 0, 0])
    assert client.get_consumption_status("t", "no") == (None, None)
    assert not client.check_consumption_status("t", "p")
    client.get_meta(FIELDS, 1, "p", task_name="t", sampling_config={"dp_rank": 0, "unknown": 1})
    assert client.check_consumption_status("t", "p")
    assert client.reset_consumption("p", "t")
    assert client.reset_consumption("no")
    assert client.get_meta(FIELDS, 3, "p", task_name="t", sampling_config={}).size == 3
    assert not client.check_consumption_status("t", "no")


def test_a_fetch_in_polling_mode_that_finds_too_few(client: TransferQueueClient) -> None:
    client.put(batch(), partition_id="p")
    for partition in ("p", "no such partition"):
        meta = client.get_meta(FIELDS, 4, partition, task_name="t")
        assert (meta.size, meta.global_indexes, meta.is_ready) == (0, [], False)


def test_force_fetch_gives_all_rows_and_the_fields_that_there_are(client: TransferQueueClient) -> None:
    meta = client.put(batch(), partition_id="p")
    more = client.put(TensorDict({"x": torch.ones(1), "only": torch.ones(1)}, [1]), partition_id="p")
    found = client.get_meta(["x", "only", "no"], 1, "p", mode="force_fetch")
    assert found.global_indexes == [*meta.global_indexes, *more.global_indexes]
    assert found.field_names == ["only", "x"]
    assert found.production_status.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda c: c.get_meta(FIELDS, 1, "no", mode="force_fetch"), "ValueError: Partition no not found"),
        (lambda c: c.get_meta(FIELDS, 1, "p", mode="no"), "ValueError"),
        (lambda c: c.get_meta(FIELDS, 1, "p"), "task_name"),
        (lambda c: c.get_meta(None, 1, "p", task_name="t"), "TypeError"),
        (lambda c: c.kv_retrieve_keys([1], "no"), "no"),
        (lambda c: c.get_production_status([""], "p"), "ValueError"),
        (lambda c: c.clear_partition(3), "TypeError"),
        (lambda c: c.clear_samples("p"), "TypeError"),
        (lambda c: c.set_custom_meta("p"), "TypeError"),
    ],
)
def test_a_request_that_fails_names_the_error(client: TransferQueueClient, call: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text) as caught:
        call(client)
    assert client.client_id in str(caught.value)


def test_metadata_by_key_and_back(client: TransferQueueClient) -> None:
    tq.kv_batch_put(["a", "b", "c"], "p", batch(), [{"n": 0}, {"n": 1}, {"n": 2}])
    meta = client.kv_retrieve_meta(["c", "zz", "a"], "p")
    assert (meta.size, meta.custom_meta, meta.field_names) == (2, [{"n": 2}, {"n": 0}], FIELDS)
    assert client.kv_retrieve_keys(meta.global_indexes, "p") == ["c", "a"]
    assert client.kv_retrieve_keys(meta.global_indexes[0], "p") == ["c"]
    assert client.kv_retrieve_keys([meta.global_indexes[0], 10**9], "p") == ["c", None]
    assert client.kv_retrieve_meta(["a", "b", "a"], "p").custom_meta == [{"n": 0}, {"n": 1}, {"n": 0}]
    assert client.kv_retrieve_meta("a", "no").size == 0
    created = client.kv_retrieve_meta(["a", "new"], "p", create=True)
    assert (created.size, created.is_ready, created.field_names) == (2, False, [])
    assert "new" in client.kv_list("p")["p"]
    for wrong, error in (([], ValueError), (["a"], TypeError), ("a", TypeError)):
        with pytest.raises(error):
            client.kv_retrieve_keys(wrong, "p")  # type: ignore[arg-type]
    # The native face names what does not exist.
    with pytest.raises(native.KeyNotFoundError, match="zz"):
        native.kv_retrieve_meta(["a", "zz"], "p")


def test_every_method_has_an_asynchronous_form(client: TransferQueueClient) -> None:
    calls = """
        put get_meta get_data set_custom_meta clear_samples clear_partition get_production_status get_consumption_status
        check_production_status check_consumption_status reset_consumption get_partition_list kv_retrieve_meta
        kv_retrieve_keys kv_list save_controller_checkpoint load_controller_checkpoint save_storage_checkpoint
        load_storage_checkpoint
    """
    names = calls.split()
    assert all(asyncio.iscoroutinefunction(getattr(client, f"async_{name}")) for name in names)

    async def round_trip() -> list[float]:
        meta = await client.async_put(batch(), partition_id="p")
        assert client.get_data(meta)["x"].tolist() == [0.0, 1.0, 2.0]  # blocking, on the loop's own thread
        fetched = await client.async_get_meta(FIELDS, 3, "p", task_name="t")
        with pytest.raises(RuntimeError, match="Partition no not found"):
            await client.async_get_meta(FIELDS, 3, "no", mode="force_fetch")
        return list((await client.async_get_data(fetched))["x"].tolist())

    assert asyncio.run(round_trip()) == [0.0, 1.0, 2.0]
    client.clear_partition("p")
    # On the client's own loop, from here and from a coroutine on another loop.
    assert client._run_coroutine(round_trip()) == [0.0, 1.0, 2.0]

    async def nested() -> None:
        client._run_coroutine(round_trip())

    with pytest.raises(RuntimeError, match="await it"):
        client._run_coroutine(nested())


def test_a_client_by_what_the_configuration_says(client: TransferQueueClient) -> None:
    meta = client.put(batch(), partition_id="p")
    other = TransferQueueClient("other", {"session": client.session, "node": "here"})
    other.initialize_storage_manager("SimpleStorage", {"zmq_info": None})
    assert other.get_data(meta)["x"].tolist() == [0.0, 1.0, 2.0]
    again = pickle.loads(pickle.dumps(other))
    assert (again.client_id, again.get_partition_list()) == ("other", ["p"])
    other.close()
    other.close()
    with pytest.raises(RuntimeError, match="closed"):
        other.get_data(meta)
    assert client.get_partition_list() == ["p"]
    with pytest.raises(TypeError, match="session"):
        TransferQueueClient("other", 5)
    with pytest.raises(LookupError, match="nosuch"):
        TransferQueueClient("other", "nosuch")


@pytest.mark.timeout(60)
def test_a_forked_child_goes_on_with_what_it_inherited(client: TransferQueueClient) -> None:
    meta = client.put(batch(), partition_id="p")
    client._run_coroutine(client.async_get_partition_list())
    child = os.fork()
    if child == 0:
        status = 1
        try:
            tq.kv_put("child", "p", {"x": torch.tensor(5.0)})
            listed = client._run_coroutine(client.async_get_partition_list())
            if listed == ["p"] and client.get_data(meta)["x"].tolist() == [0.0, 1.0, 2.0]:
                status = 0
            tq.close()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tq.kv_batch_get("child", "p")["x"].tolist() == [5.0]
    assert client.get_data(meta)["x"].tolist() == [0.0, 1.0, 2.0]


def test_numpy_indexes_and_sizes_are_taken(client: TransferQueueClient) -> None:
    meta = client.put(batch(), partition_id="p")
    assert client.get_meta(FIELDS, np.int64(2), "p", task_name="t").size == 2  # type: ignore[arg-type]
    assert meta[np.int64(1)].size == 1
