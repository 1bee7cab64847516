"""Puts and gets by metadata."""

from __future__ import annotations

import pickle

import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

import transferqueue as tq
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)


def batch(rows: int = 4, start: int = 0) -> TensorDict:
    lengths = [1 + (start + row) % 5 for row in range(rows)]
    return TensorDict(
        {
            "x": torch.arange(start, start + rows).unsqueeze(1).repeat(1, 3).float(),
            "flag": torch.tensor([row % 2 == 0 for row in range(start, start + rows)]),
            "ragged": torch.nested.nested_tensor(
                [torch.full((n,), start + row) for row, n in enumerate(lengths)], layout=torch.jagged
            ),
            "uid": NonTensorStack(*[f"row {row}" for row in range(start, start + rows)]),
        },
        batch_size=[rows],
    )


def check(found: TensorDict, start: int, rows: int) -> None:
    expected = batch(rows, start)
    assert found.batch_size == expected.batch_size
    assert torch.equal(found["x"], expected["x"])
    assert torch.equal(found["flag"], expected["flag"])
    assert [row.tolist() for row in found["ragged"].unbind()] == [row.tolist() for row in expected["ragged"].unbind()]
    assert list(found["uid"]) == list(expected["uid"])


def test_rows_come_back_as_they_were_put(client: TransferQueueClient) -> None:
    meta = client.put(batch(), partition_id="train")
    assert meta.is_ready
    assert meta.field_names == ["flag", "ragged", "uid", "x"]
    assert meta.partition_ids == ["train"] * 4
    assert meta.session == client.session
    check(client.get_data(meta), 0, 4)


def test_further_batch_dimensions_are_dimensions_of_the_rows(client: TransferQueueClient) -> None:
    found = client.get_data(client.put(TensorDict({"x": torch.ones(2, 3, 5)}, [2, 3]), partition_id="p"))
    assert found.batch_size == torch.Size([2])
    assert torch.equal(found["x"], torch.ones(2, 3, 5))


def test_metadata_may_travel_be_split_reordered_and_joined(client: TransferQueueClient) -> None:
    meta = pickle.loads(pickle.dumps(client.put(batch(7), partition_id="train")))
    pieces = meta.chunk(3)
    check(client.get_data(pieces[1]), 3, 2)
    check(client.get_data(type(meta).concat(pieces)), 0, 7)
    meta.reorder([6, 0, 1, 2, 3, 4, 5])
    found = client.get_data(meta)
    assert list(found["uid"])[:2] == ["row 6", "row 0"]
    assert found["ragged"].unbind()[0].tolist() == batch(7)["ragged"].unbind()[6].tolist()


def test_rows_of_many_puts_come_in_the_order_of_the_metadata(client: TransferQueueClient) -> None:
    metas = [client.put(batch(1, row), partition_id="train") for row in range(6)]
    check(client.get_data(tq.BatchMeta.concat(metas)), 0, 6)
    backwards = tq.BatchMeta.concat(metas[::-1])
    assert client.get_data(backwards)["x"][:, 0].tolist() == [5, 4, 3, 2, 1, 0]


def test_a_second_put_adds_fields_and_lists_all_of_them(client: TransferQueueClient) -> None:
    first = client.put(TensorDict({"a": torch.arange(4)}, [4]), partition_id="train")
    second = client.put(TensorDict({"b": torch.arange(4) * 10}, [4]), metadata=first)
    assert second.field_names == ["a", "b"]
    assert second.is_ready
    assert second.global_indexes == first.global_indexes
    found = client.get_data(second)
    assert found["a"].tolist() == [0, 1, 2, 3]
    assert found["b"].tolist() == [0, 10, 20, 30]
    client.clear_samples(second)
    assert client.kv_list("train") == {"train": {}}
    with pytest.raises(tq.StaleMetadataError):
        client.get_data(first)


def test_a_put_overwrites_and_a_view_keeps_what_it_showed(client: TransferQueueClient) -> None:
    big = torch.arange(64 * 1024, dtype=torch.int64).reshape(4, -1)
    meta = client.put(TensorDict({"x": big}, [4]), partition_id="train")
    held = client.get_data(meta)["x"]
    client.put(TensorDict({"x": -big}, [4]), metadata=meta)
    assert torch.equal(held, big)
    assert torch.equal(client.get_data(meta)["x"], -big)
    client.clear_partition("train")
    assert torch.equal(held, big)


def test_part_of_the_rows_may_be_overwritten(client: TransferQueueClient) -> None:
    meta = client.put(batch(6), partition_id="train")
    client.put(TensorDict({"x": torch.full((2, 3), -1.0)}, [2]), metadata=meta.select_samples([1, 4]))
    found = client.get_data(meta)
    assert found["x"][:, 0].tolist() == [0, -1, 2, 3, -1, 5]
    assert list(found["uid"]) == [f"row {row}" for row in range(6)]


def test_the_stored_value_is_the_one_at_the_return_of_put(client: TransferQueueClient) -> None:
    x = torch.zeros(4, 20_000)
    meta = client.put(TensorDict({"x": x}, [4]), partition_id="train")
    x.fill_(7)
    assert client.get_data(meta)["x"].abs().sum() == 0


@pytest.mark.parametrize("mode", ["cow", "copy"])
@pytest.mark.parametrize("columns", [3, 40_000])
def test_writing_into_what_was_read_reaches_nobody(client: TransferQueueClient, mode: str, columns: int) -> None:
    stored = torch.arange(4 * columns).reshape(4, columns).float()
    meta = client.put(TensorDict({"x": stored, "y": stored + 1}, [4]), partition_id="train")
    first, second = client.get_data(meta, mode=mode), client.get_data(meta, mode=mode)
    first["x"].fill_(-1)
    assert torch.equal(second["x"], stored)
    assert torch.equal(first["y"], stored + 1)
    kept = first["y"]
    del first
    third = client.get_data(meta, mode=mode)
    third["y"].mul_(0)
    assert torch.equal(kept, stored + 1)
    assert torch.equal(client.get_data(meta)["x"], stored)


def test_shared_mode_shows_the_stored_bytes(client: TransferQueueClient) -> None:
    stored = torch.arange(80_000).reshape(4, -1)
    meta = client.put(TensorDict({"x": stored}, [4]), partition_id="train")
    assert torch.equal(client.get_data(meta, mode="shared")["x"], stored)


def test_a_large_field_is_viewed_and_a_small_one_copied(client: TransferQueueClient) -> None:
    data = TensorDict({"large": torch.zeros(4, 100_000), "small": torch.zeros(4)}, [4])
    meta = client.put(data, partition_id="train")
    found, report = client.get_data_with_report(meta)
    assert report.rows == 4
    assert report.bytes_viewed == 4 * 100_000 * 4
    assert 0 < report.bytes_copied <= 4096
    assert found["large"].untyped_storage().nbytes() == 4 * 100_000 * 4
    assert client.get_data_with_report(meta, mode="copy")[1].bytes_viewed == 0


def test_fields_may_be_chosen(client: TransferQueueClient) -> None:
    meta = client.put(batch(), partition_id="train")
    assert set(client.get_data(meta, fields=["x", "uid"]).keys()) == {"x", "uid"}
    assert set(client.get_data(meta, fields="x").keys()) == {"x"}
    assert set(client.get_data(meta.select_fields(["flag"])).keys()) == {"flag"}


def test_values_of_the_batch_become_extra_info(client: TransferQueueClient) -> None:
    data = TensorDict({"x": torch.arange(4), "temperature": NonTensorData(0.7, batch_size=[4])}, [4])
    meta = client.put(data, partition_id="train")
    assert meta.field_names == ["x"]
    assert meta.extra_info == {"temperature": 0.7}
    assert set(client.get_data(meta).keys()) == {"x"}


def test_batches_without_fields_or_rows(client: TransferQueueClient) -> None:
    no_fields = client.put(TensorDict({}, [4]), partition_id="train")
    no_rows = client.put(TensorDict({"x": torch.zeros(0, 3, dtype=torch.int32)}, [0]), partition_id="train")
    assert no_fields.size == no_rows.size == 0
    assert client.get_data(no_fields).batch_size == torch.Size([0])
    found = client.get_data(no_rows)
    assert found["x"].shape == (0, 3)
    assert found["x"].dtype == torch.int32
    assert client.get_data(tq.BatchMeta()).batch_size == torch.Size([0])
    client.clear_samples(no_rows)
    client.set_custom_meta(no_rows)


def test_pads_are_read_and_not_stored(client: TransferQueueClient) -> None:
    meta = client.put(batch(3), partition_id="train").pad_to_divisor(4)
    assert client.get_data(meta)["x"][:, 0].tolist() == [0, 1, 2, 2]
    outcome = TensorDict(
        {
            "y": torch.tensor([10, 11, 12, -1]),
            "z": torch.nested.nested_tensor([torch.arange(n) for n in (1, 2, 3, 9)], layout=torch.jagged),
            "s": NonTensorStack("a", "b", "c", "pad"),
        },
        [4],
    )
    back = client.put(outcome, metadata=meta)
    assert back.num_padding == 1
    found = client.get_data(back.unpad(), fields=["y", "z", "s"])
    assert found["y"].tolist() == [10, 11, 12]
    assert [len(row) for row in found["z"].unbind()] == [1, 2, 3]
    assert list(found["s"]) == ["a", "b", "c"]


def test_rows_of_several_partitions_keep_the_order_of_the_metadata(client: TransferQueueClient) -> None:
    left, right = (client.put(batch(3, start), partition_id=name) for start, name in ((0, "left"), (3, "right")))
    meta = tq.BatchMeta.concat([left, right])
    check(client.get_data(meta), 0, 6)
    meta.reorder([3, 0, 4, 1, 5, 2])
    found = client.get_data(meta)
    assert found["x"][:, 0].tolist() == [3, 0, 4, 1, 5, 2]
    assert list(found["uid"]) == [f"row {row}" for row in (3, 0, 4, 1, 5, 2)]
    with pytest.raises(ValueError, match="chunk_by_partition"):
        client.put(TensorDict({"y": torch.arange(6)}, [6]), metadata=meta)


def test_partitions_do_not_mix(client: TransferQueueClient) -> None:
    first = client.put(batch(2), partition_id="p1")
    client.clear_partition("p1")
    second = client.put(batch(2), partition_id="p2")
    assert not set(first.global_indexes) & set(second.global_indexes)
    assert client.get_meta("x", 2, "p1", task_name="t", polling_mode=True).size == 0
    assert client.get_partition_list() == ["p2"]


def test_a_data_parser_sees_columns_and_may_change_them(client: TransferQueueClient) -> None:
    seen = {}

    def parser(columns: dict[str, object]) -> dict[str, object]:
        seen.update(columns)
        return {**columns, "x": columns["x"] * 2}  # type: ignore[operator]

    meta = client.put(batch(3), partition_id="train", data_parser=parser)
    assert isinstance(seen["uid"], list)
    assert isinstance(seen["ragged"], list)
    assert client.get_data(meta)["x"][:, 0].tolist() == [0, 2, 4]
    for wrong in (lambda columns: {}, lambda columns: None, lambda columns: {**columns, "uid": ["one"]}):
        with pytest.raises(RuntimeError, match="data_parser"):
            client.put(batch(3), partition_id="other", data_parser=wrong)
    assert "other" not in client.get_partition_list()


def test_row_shapes_of_ragged_fields_are_looked_up(client: TransferQueueClient) -> None:
    meta = pickle.loads(pickle.dumps(client.put(batch(4), partition_id="train")))
    assert meta.get_shapes("ragged") == [(1,), (2,), (3,), (4,)]
    assert meta.get_dtypes("x") == [torch.float32] * 4
    assert meta.field_schema["x"]["shape"] == (3,)
    assert meta.field_schema["flag"]["shape"] == ()


def test_a_get_may_wait_for_a_field(client: TransferQueueClient) -> None:
    import threading

    meta = client.get_meta(["x"], 2, "train", mode="insert")
    with pytest.raises(tq.FieldNotReadyError) as caught:
        client.get_data(meta)
    assert caught.value.fields == ("x",)
    assert list(caught.value.rows) == meta.global_indexes
    with pytest.raises(tq.TransferTimeoutError, match="'x'"):
        client.get_data(meta, timeout=0.2)
    later = threading.Timer(0.2, lambda: client.put(TensorDict({"x": torch.arange(2)}, [2]), metadata=meta.copy()))
    later.start()
    assert client.get_data(meta, timeout=60)["x"].tolist() == [0, 1]
    later.join()


def test_tensors_may_go_to_a_device(client: TransferQueueClient) -> None:
    meta = client.put(batch(), partition_id="train")
    assert client.get_data(meta, device="cpu")["x"].device.type == "cpu"
    assert client.get_data(meta, fields=["x"], device="meta")["x"].device.type == "meta"
    assert client.get_data(meta[:0], fields=["x"], device="meta")["x"].shape == (0, 3)
