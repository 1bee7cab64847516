"""Sizes on the wire, round trips, and what happens to bytes that are none."""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.metadata.builders import kv_of, meta_of, pickled, shipped, w_meta
from transferqueue.errors import CorruptSegmentError, LayoutMismatchError, TransferQueueError
from transferqueue.metadata import BatchMeta, KVBatchMeta, batch_wire, kv_wire, wire


def test_w_takes_less_than_a_kilobyte_and_more_rows_add_nothing(record_property: Any) -> None:
    sizes = {rows: len(pickled(w_meta(np.arange(10**6, 10**6 + rows)))) for rows in (512, 4096, 65_536)}
    print(f"pickled W metadata: {sizes}")
    record_property("pickled_nbytes", sizes)
    assert sizes[512] <= 1000
    assert abs(sizes[4096] - sizes[512]) <= 8
    assert abs(sizes[65_536] - sizes[512]) <= 16


def test_4096_scattered_rows_take_at_most_five_bytes_each() -> None:
    rng = np.random.default_rng(0)
    for indexes in (np.sort(rng.choice(1 << 32, 4096, replace=False)), rng.integers(0, 1 << 38, 4096)):
        data = pickled(w_meta(indexes))
        print(f"4096 scattered rows: {len(data)} B")
        assert len(data) <= 20_000
        assert pickle.loads(data).global_indexes == indexes.tolist()


def test_rows_times_fields_stays_small() -> None:
    """Field case 12."""
    schema = {f"field_{i}": {"dtype": "bfloat16", "shape": (1024,)} for i in range(20)}
    rng = np.random.default_rng(1)
    meta = BatchMeta(np.arange(8192), "train", schema, rng.integers(0, 2, 8192))
    assert len(pickled(meta)) < 200_000
    started = time.perf_counter()
    joined = BatchMeta.concat(meta.chunk(64))
    split_and_join_s = time.perf_counter() - started
    print(f"8192 rows x 20 fields: {len(pickled(meta))} B, split in 64 and joined in {split_and_join_s * 1e3:.2f} ms")
    assert joined == meta
    assert BatchMeta.concat([shipped(piece) for piece in meta.chunk(64)]) == meta


def test_states_travel_as_bits() -> None:
    status = np.random.default_rng(2).integers(0, 2, 4096)
    mixed = meta_of(range(4096), production_status=status)
    assert len(pickled(mixed)) - len(pickled(meta_of(range(4096)))) <= 4096 // 8 + 8
    assert shipped(mixed).production_status.tolist() == status.tolist()
    odd = meta_of(range(3), production_status=np.array([0, 7, -3]))
    assert shipped(odd).production_status.tolist() == [0, 7, -3]


def test_equal_row_dicts_are_written_once() -> None:
    plain = len(pickled(meta_of(range(1000))))
    same = meta_of(range(1000), custom_meta=[{"source": "gsm8k", "weight": 1.5}] * 1000)
    assert len(pickled(same)) - plain <= 60
    back = shipped(same)
    assert back.custom_meta == same.custom_meta
    back.custom_meta[0]["source"] = "changed"
    assert back.custom_meta[1]["source"] == "gsm8k"


def test_keys_cost_their_bytes_and_equal_tags_nothing() -> None:
    keys = [f"{i:08x}-7c1e-4c5b-9d59-aa0c2b1f3d{i % 100:02d}" for i in range(4096)]
    none = len(pickled(kv_of(keys, tags=[{}] * 4096)))
    assert none <= sum(map(len, keys)) + 2 * len(keys) + 200
    assert len(pickled(kv_of(keys, tags=[{"step": 3, "status": "done"}] * 4096))) - none <= 40
    varying = len(pickled(kv_of(keys, tags=[{"status": "done", "score": i % 7} for i in range(4096)])))
    assert varying - none <= 4096 + 60


def test_production_status_is_writable_where_arrays_arrive_read_only() -> None:
    """Ray maps out-of-band buffers read-only."""
    info = {"table": np.arange(10_000)}
    meta = meta_of(range(4), production_status=np.array([1, 0, 1, 1]), extra_info=info)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(meta, protocol=5, buffer_callback=buffers.append)
    assert len(buffers) == 1  # the array stays out of band, it is not copied into the message
    assert len(data) < 1000
    back = pickle.loads(data, buffers=[bytes(buffer.raw()) for buffer in buffers])
    assert not back.extra_info["table"].flags.writeable
    back.production_status[1] = 1
    assert back.is_ready


def test_any_python_value_travels_in_extra_info() -> None:
    torch = pytest.importorskip("torch")
    info = {
        "loss": torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
        "table": np.arange(6).reshape(2, 3),
        "shape": (3, 4),
        "seen": {1, 2},
        "big": 1 << 80,
        "by_rank": {0: "a", 1: "b"},
        "text": "\ud800",
        "nan": float("nan"),
        "blob": b"\x00\xff",
        "deep": [[[[[["x"]]]]]],
    }
    for meta in (meta_of(range(3), extra_info=info), kv_of(["x", "y"], extra_info=info)):
        back = shipped(meta)
        assert back == meta
        assert back.extra_info["loss"].dtype == torch.bfloat16
        assert type(back.extra_info["shape"]) is tuple
        assert list(back.extra_info) == list(info)


@pytest.mark.parametrize("value", [1 << 70, "\udfff", (1, 2), np.float32(2), {"k": (1,)}], ids=repr)
def test_any_python_value_travels_in_row_dicts(value: Any) -> None:
    rows = [{"v": value}, {}, {"v": 1, "w": [value]}]
    meta = meta_of(range(3), custom_meta=rows, _custom_backend_meta=rows)
    assert shipped(meta).custom_meta == rows
    assert shipped(meta)._custom_backend_meta == rows
    assert shipped(kv_of(["a", "b", "c"], tags=rows)).tags == rows
    uniform = [{"v": value}] * 3
    assert shipped(kv_of(["a", "b", "c"], tags=uniform)).tags == uniform


def test_types_that_compare_equal_are_not_merged() -> None:
    rows = [{"v": 1}, {"v": True}, {"v": 1.0}]
    assert [type(row["v"]) for row in shipped(kv_of(["a", "b", "c"], tags=rows)).tags] == [int, bool, float]
    signs = [{"v": 0.0}, {"v": -0.0}]
    assert [str(row["v"]) for row in shipped(kv_of(["a", "b"], tags=signs)).tags] == ["0.0", "-0.0"]


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_batch_meta_round_trip(data: st.DataObject) -> None:
    rows = data.draw(st.integers(0, 12))
    per_row = st.dictionaries(st.text(max_size=3), JSON_LIKE, max_size=3)
    meta = BatchMeta(
        data.draw(st.lists(st.integers(0, (1 << 63) - 1), min_size=rows, max_size=rows)),
        data.draw(st.lists(st.sampled_from(["p", "q", "r\0"]), min_size=rows, max_size=rows)),
        {
            name: data.draw(st.sampled_from([{"dtype": "bool", "shape": (2, 0)}, {"is_non_tensor": True}]))
            for name in data.draw(st.lists(st.text(max_size=4), unique=True, max_size=4))
        },
        data.draw(st.none() | st.lists(st.integers(0, 1), min_size=rows, max_size=rows)),
        data.draw(st.dictionaries(st.text(max_size=3), JSON_LIKE, max_size=3)),
        data.draw(st.none() | st.lists(per_row, min_size=rows, max_size=rows)),
        session=data.draw(st.none() | st.text(max_size=5)),
    ).pad_to_divisor(data.draw(st.integers(1, 5)))
    back = shipped(meta)
    assert back == meta
    assert back.size == meta.size
    assert back.num_padding == meta.num_padding
    assert back.custom_meta == meta.custom_meta


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_kv_batch_meta_round_trip(data: st.DataObject) -> None:
    keys = data.draw(st.lists(st.text(max_size=6), unique=True, max_size=10))
    meta = KVBatchMeta(
        keys,
        [data.draw(st.dictionaries(st.sampled_from("abc"), JSON_LIKE, max_size=3)) for _ in keys],
        data.draw(st.none() | st.text(max_size=4)),
        data.draw(st.none() | st.lists(st.text(max_size=4), unique=True, max_size=4)),
        data.draw(st.dictionaries(st.text(max_size=3), JSON_LIKE, max_size=3)),
        session=data.draw(st.none() | st.text(max_size=5)),
    ).pad_to_divisor(data.draw(st.integers(1, 4)))
    back = shipped(meta)
    assert back == meta
    assert back.keys == meta.keys
    assert back.tags == meta.tags
    assert back.num_padding == meta.num_padding


def _messages() -> list[tuple[Any, Any, bytes]]:
    batch = meta_of(
        [5, 9, 2, 2_000_000],
        partition_ids=["p", "q", "p", "q"],
        production_status=[1, 0, 0, 1],
        custom_meta=[{"a": i, "b": "x"} for i in range(4)],
        field_schema={"x": {"dtype": "int8", "shape": (-1,), "is_nested": True, "per_sample_shapes": [(1,)] * 4}},
    ).pad_to_divisor(3)
    keys = kv_of(["k1", "k2", "k3"]).pad_to_divisor(2)
    return [
        (batch_wire.decode, BatchMeta, batch_wire.encode(batch)[0]),
        (kv_wire.decode, KVBatchMeta, kv_wire.encode(keys, keys.padding_mask)[0]),
    ]


def test_truncated_bytes_are_refused() -> None:
    for decode, kind, data in _messages():
        assert decode(kind, data).size > 0
        for length in range(len(data)):
            with pytest.raises(TransferQueueError):
                decode(kind, data[:length])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_changed_bytes_are_refused_or_read_as_something_whole(data: st.DataObject) -> None:
    decode, kind, message = data.draw(st.sampled_from(_messages()))
    changed = bytearray(message)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        meta = decode(kind, bytes(changed))
    except TransferQueueError:
        return
    assert len(meta.padding_mask) == meta.size
    assert shipped(meta) == meta
    assert sum(piece.size for piece in meta.chunk(3)) == meta.size


def test_another_version_is_named() -> None:
    for decode, kind, data in _messages():
        with pytest.raises(LayoutMismatchError, match=f"wire version 9.*reads {wire.WIRE_VERSION}"):
            decode(kind, b"\x09" + data[1:])


def _packed(**changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "session": None,
        "size": 2,
        "indexes": b"R\x00\x02\x01",
        "partitions": ["p"],
        "fields": [],
    }
    return wire.pack(wire.BatchOnWire(**(fields | changes)))


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 1 << 40},
        {"size": -1},
        {"indexes": b"R\x01\x02\x01"},  # starts at -1
        {"partitions": []},
        {"partitions": ["p", "q"]},
        {"partition_codes": b"D\x00\x04"},
        {"status": 1000},
        {"status": b"b"},
        {"status": b"r\x01"},
        {"n_pads": 1, "pads": b"R\x04"},  # position 2 of 2 rows
        {"n_pads": 2, "pads": b"R\x00\x00\x01"},  # the same position twice
        {"fields": [wire.FieldOnWire("f", "int8", [1]), wire.FieldOnWire("f", "int8", [1])]},
        {"fields": [wire.FieldOnWire("f", "__class__", [1])]},
        {"fields": [wire.FieldOnWire("f", "int8", [1 << 63])]},
        {"fields": [wire.FieldOnWire("f", "int8", [1], 8)]},
    ],
    ids=repr,
)
def test_contradictions_are_refused(changes: dict[str, Any]) -> None:
    assert batch_wire.decode(BatchMeta, _packed()).global_indexes == [0, 1]
    with pytest.raises(CorruptSegmentError):
        batch_wire.decode(BatchMeta, _packed(**changes))


def test_a_small_message_cannot_ask_for_a_huge_array() -> None:
    rows = 1 << 23
    one_per_row = b"R\x00\x00" + bytes([0xFF, 0xFF, 0xFF, 0x03])
    field = wire.FieldOnWire("f", "int8", [-1] * 4, 1, [one_per_row] * 4)
    with pytest.raises(CorruptSegmentError, match="dimensions"):
        wire.unpack_fields([field], rows)
