"""Section B of the field cases: what bites people who move training batches between processes."""

from __future__ import annotations

import json
import pickle
import sys
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict

from tests.unit.codec.compare import assert_same_rows, jagged, put_get, put_get_column, rows_of, same
from tests.unit.codec.fake_native import FakeReservation, FakeStore
from transferqueue.codec import decode, decode_empty, plan_put, schema_dict
from transferqueue.errors import PickleNotAllowedError, RowDecodeError

BOTH = pytest.mark.parametrize("copy_below", [1, 1 << 30], ids=["viewed", "copied"])


@BOTH
def test_field_case_14_bfloat16_is_bit_exact_and_two_bytes_wide(copy_below: int) -> None:
    x = torch.tensor([[1.0, -0.0, float("nan")], [1e-40, 3.39e38, 0.1], [0, 1, 2], [5, 6, float("inf")]]).bfloat16()
    rows = [{"t": x[i]} for i in range(4)]
    plan = plan_put({"x": x, "d": rows})
    layout = next(layout for layout in plan.layouts if layout.name == "x")
    assert (layout.row_nbytes, layout.data_nbytes) == (6, 24)
    out = put_get({"x": x, "d": rows}, copy_below=copy_below)
    assert same(out["x"], x)
    assert_same_rows(out["d"], rows)


@BOTH
def test_field_case_17_one_scalar_per_row(copy_below: int) -> None:
    x = torch.tensor([1.5, 2.5, -3.0, 4.0])
    plan = plan_put({"x": x})
    assert schema_dict(plan.schemas["x"])["shape"] == []
    out = put_get({"x": x}, copy_below=copy_below)
    assert same(out["x"], x)
    assert out["x"].tolist() == [1.5, 2.5, -3.0, 4.0]
    assert out[1]["x"].shape == ()


@BOTH
def test_field_case_18_zero_elements_keep_shape_dtype_and_key(copy_below: int) -> None:
    some_empty, all_empty = jagged(2, 0, 3, 1), jagged(0, 0, 0, 0)
    batch = TensorDict({"none": torch.empty(4, 0, 3, dtype=torch.int16), "some": some_empty, "all": all_empty}, [4])
    assert plan_put(TensorDict({"none": torch.empty(4, 0)}, [4])).nbytes > 0  # the block exists; its data has no bytes
    out = put_get(batch, copy_below=copy_below)
    assert set(out.keys()) == {"none", "some", "all"}
    assert (out["none"].shape, out["none"].dtype) == ((4, 0, 3), torch.int16)
    assert_same_rows(out["some"], some_empty.unbind())
    assert [row.shape for row in out["all"].unbind()] == [(0,)] * 4
    assert out["all"].dtype == torch.float32


def test_field_case_18_jagged_rows_without_bytes_keep_their_lengths() -> None:
    x = jagged(2, 0, 3, rest=(0, 4))
    out = put_get_column(x, 3)
    assert out.layout is torch.jagged
    assert [tuple(row.shape) for row in out.unbind()] == [(2, 0, 4), (0, 0, 4), (3, 0, 4)]
    assert [tuple(row.shape) for row in put_get_column(x, 3, rows=[2, 0]).unbind()] == [(3, 0, 4), (2, 0, 4)]


def test_field_case_19_no_fields_and_no_rows() -> None:
    nothing = plan_put(TensorDict({}, [4]))
    assert (nothing.n_rows, nothing.nbytes, nothing.layouts) == (4, 0, [])
    batch = {
        "x": torch.empty(0, 3, dtype=torch.int32),
        "j": jagged(dtype=torch.bfloat16, rest=(5,)),
        "s": torch.nested.nested_tensor([]),
        "u": [],
        "a": np.empty((0, 2), dtype="<U3"),
    }
    plan = plan_put(TensorDict({key: batch[key] for key in ("x", "j")}, [0]))
    assert plan.n_rows == 0
    plan.write(FakeReservation(plan.nbytes))  # type: ignore[arg-type]
    out = decode_empty({name: schema_dict(raw) for name, raw in plan_put(batch, 0).schemas.items()})
    assert out.batch_size == (0,)
    assert (out["x"].shape, out["x"].dtype) == ((0, 3), torch.int32)
    assert (out["j"].size(0), out["j"].dtype, out["j"].layout) == (0, torch.bfloat16, torch.jagged)
    assert list(out["u"]) == []
    assert put_get(TensorDict({"x": torch.ones(2)}, [2]), rows=[]).batch_size == (0,)


NOT_CONTIGUOUS = {
    "transposed": torch.arange(12.0).view(3, 4).t(),
    "strided": torch.arange(24).view(4, 6)[:, ::2],
    "expanded": torch.arange(3.0)[None].expand(4, -1),
    "conjugated": torch.view_as_complex(torch.arange(16.0).view(4, 2, 2)).conj(),
    "negative": torch.view_as_complex(torch.arange(16.0).view(4, 2, 2)).conj().imag,
    "requires grad": torch.arange(8.0).view(4, 2).requires_grad_(),
    "computed": (torch.arange(8.0).view(4, 2).requires_grad_() * 2).t().t(),
    "flipped": torch.arange(8).view(4, 2).flip(0),
    "fp8": torch.arange(12.0).to(torch.float8_e4m3fn).view(3, 4).t(),
    "sub-byte": torch.arange(12).to(torch.uint8).view(torch.uint4).view(3, 4).t(),
    "parameter": torch.nn.Parameter(torch.ones(4, 2)),
    "first row beyond the storage's start": torch.arange(20.0).view(10, 2)[6:],
}


@pytest.mark.parametrize("x", NOT_CONTIGUOUS.values(), ids=list(NOT_CONTIGUOUS))
def test_field_case_20_any_strides_with_one_copy(x: torch.Tensor) -> None:
    plan = plan_put({"x": x})
    reservation = FakeReservation(plan.nbytes)
    plan.write(reservation)  # type: ignore[arg-type]
    assert reservation.copied_nbytes == x.numel() * x.element_size()
    out = put_get({"x": x})["x"]
    assert same(out, x.detach())
    assert not out.requires_grad
    assert out.is_contiguous()
    assert not out.is_conj()
    assert not out.is_neg()


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_field_case_23_the_ragged_dimension_survives_every_step(dim: int) -> None:
    x = jagged(3, 1, 4, 2, dtype=torch.int64, rest=(2, 5), dim=dim)
    rows = [row.contiguous() for row in x.unbind()]
    store = FakeStore()
    store.put(plan_put(TensorDict({"x": x}, [4])))
    for chosen in ([0, 1], [2, 3], [1, 0], [2, 3, 0, 1], [3, 3, 3]):
        out = decode(store.resolve(chosen), mode="cow", copy_below=1, allow_pickle=False)[0].get("x")  # type: ignore[arg-type]
        assert out.layout is torch.jagged
        assert out._ragged_idx == dim
        assert_same_rows(out, [rows[i] for i in chosen])
        assert out.offsets().diff().tolist() == [rows[i].shape[dim - 1] for i in chosen]
        again = pickle.loads(pickle.dumps(out))
        assert again._ragged_idx == dim
        assert_same_rows(again, [rows[i] for i in chosen])
        store.put(plan_put(TensorDict({"x": out}, [len(chosen)])))  # what came out goes in again
        last = range(store.n_rows - len(chosen), store.n_rows)
        back = decode(store.resolve(last), mode="copy", copy_below=1, allow_pickle=False)[0].get("x")  # type: ignore[arg-type]
        assert_same_rows(back, [rows[i] for i in chosen])


@BOTH
def test_field_case_26_the_type_follows_what_was_put_never_the_lengths(copy_below: int) -> None:
    batch = TensorDict(
        {
            "dense": torch.arange(12.0).view(4, 3),
            "jagged": jagged(3, 3, 3, 3),
            "strided": torch.nested.nested_tensor([torch.ones(3)] * 4),
            "stack": NonTensorStack(*[torch.ones(3)] * 4),
        },
        [4],
    )
    for rows in (None, [2], [3, 0]):
        out = put_get(batch, copy_below=copy_below, rows=rows)
        assert not out["dense"].is_nested
        assert out["jagged"].is_nested
        assert out["jagged"].layout is torch.jagged
        assert out["strided"].is_nested
        assert out["strided"].layout is torch.strided
        assert isinstance(out.get("stack"), NonTensorStack)
        assert_same_rows(out.get("stack"), [torch.ones(3)] * len(rows or range(4)))


def test_field_case_27_schemas_are_plain_ints() -> None:
    batch = TensorDict({"j": jagged(3, 1, rest=(2,)), "t": jagged(3, 1, rest=(2,), dim=2), "x": torch.ones(2, 5)}, [2])
    schema = {name: schema_dict(raw) for name, raw in plan_put(batch).schemas.items()}
    assert schema["j"] == {"dtype": "float32", "shape": [-1, 2], "is_nested": True, "is_non_tensor": False}
    assert schema["t"]["shape"] == [2, -1]
    assert json.loads(json.dumps(schema)) == schema
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(schema)) == schema
    assert all(type(size) is int for entry in schema.values() for size in entry["shape"])


def test_field_case_28_a_single_jagged_row() -> None:
    one, more = jagged(5), jagged(2, 0)
    alone = put_get({"x": one})["x"]
    assert alone.layout is torch.jagged
    assert [row.tolist() for row in alone.unbind()] == [[0.0, 1.0, 2.0, 3.0, 4.0]]
    assert (alone._min_seqlen, alone._max_seqlen) == (5, 5)
    joined = put_get({"x": one}, {"x": more})["x"]
    assert joined.layout is torch.jagged
    assert_same_rows(joined, [*one.unbind(), *more.unbind()])


def test_field_case_29_row_access_does_not_unbind_the_batch() -> None:
    """10,000 rows, every 10th: the work is that of the rows picked (a[i] of torch's jagged tensor makes all rows)."""
    lengths = [1 + i % 7 for i in range(10_000)]
    x = jagged(*lengths)
    store = FakeStore()
    store.put(plan_put(TensorDict({"x": x}, [10_000])))
    resolved = store.resolve(range(0, 10_000, 10))
    calls: list[str] = []

    def count(frame: Any, event: str, argument: Any) -> None:
        if event == "c_call":
            calls.append(argument.__name__)

    sys.setprofile(count)
    try:
        out, _, copied = decode(resolved, mode="cow", copy_below=1, allow_pickle=False)  # type: ignore[arg-type]
    finally:
        sys.setprofile(None)
    assert copied == 4 * sum(lengths[::10])
    assert "unbind" not in calls
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    values = x.values()
    wanted = torch.cat([values[offsets[i] : offsets[i + 1]] for i in range(0, 10_000, 10)])
    assert same(out["x"].values(), wanted)
    assert out["x"].offsets().diff().tolist() == lengths[::10]


def test_field_case_30_split_and_join_without_torchs_own() -> None:
    parts = [jagged(2, 3), jagged(1), jagged(4, 0, 2)]
    rows = [row for part in parts for row in part.unbind()]
    assert_same_rows(put_get(*({"x": part} for part in parts))["x"], rows)
    pieces = [put_get(*({"x": part} for part in parts), rows=chosen)["x"] for chosen in ([0, 1], [2, 3], [4, 5])]
    assert [[row.tolist() for row in piece.unbind()] for piece in pieces] == [
        [row.tolist() for row in rows[start : start + 2]] for start in (0, 2, 4)
    ]


@BOTH
def test_field_case_31_none_among_rows(copy_below: int) -> None:
    rows = [None, "a", None, torch.arange(3)]
    assert_same_rows(put_get({"x": rows}, copy_below=copy_below)["x"], rows)
    assert_same_rows(put_get({"x": [None, "a", None]}, copy_below=copy_below)["x"], [None, "a", None])
    assert_same_rows(put_get({"x": [None, None]}, copy_below=copy_below)["x"], [None, None])


ARRAYS = {
    "objects": np.array(["a", "bb", None, {"k": 1}], dtype=object),
    "mixed": np.array([1, "a", 2.5, (1, 2)], dtype=object),
    "text": np.array(["x", "yyy", "", "é"]),
    "text in two dimensions": np.array([["x", "yyy"], ["", "é"]]),
    "bytes": np.array([b"a", b"bb"]),
    "dates": np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
    "durations": np.array([1, 2, 3], dtype="timedelta64[ms]"),
    "structured": np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "<i4"), ("b", "<f8")]),
    "big-endian": np.array([1, 2, 3], dtype=">i4"),
    "long double": np.array([1.5, 2.5], dtype=np.longdouble),
    "strided text": np.array(["x", "yyy", "zz", "w"])[::2],
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=list(ARRAYS))
@BOTH
def test_field_case_33_numpy_arrays_keep_values_and_kind(array: np.ndarray[Any, Any], copy_below: int) -> None:
    out = put_get({"x": array}, copy_below=copy_below)
    rows = rows_of(out.get("x"))
    assert_same_rows(out.get("x"), list(array))
    if array.dtype.kind != "O":
        again = np.asarray(rows)
        assert again.dtype.kind == array.dtype.kind
        if array.dtype.kind not in "US":  # text is as wide as the widest of these rows
            assert again.dtype.newbyteorder("=") == array.dtype.newbyteorder("=")
    assert_same_rows(out[:1].get("x"), list(array)[:1])  # rows are rows for tensordict too


def test_field_case_33_through_a_tensordict_which_wraps_the_whole_array() -> None:
    out = put_get(TensorDict({"x": np.array(["x", "yyy"]), "o": np.array(["a", None], dtype=object)}, [2]), rows=[1])
    assert_same_rows(out.get("x"), [np.str_("yyy")])
    assert_same_rows(out.get("o"), [None])


def test_field_case_33_text_of_different_widths_in_one_column() -> None:
    out = put_get({"x": np.array(["x"])}, {"x": np.array(["longer"])}, {"x": ["plain"]})
    assert_same_rows(out.get("x"), [np.str_("x"), np.str_("longer"), "plain"])


@pytest.mark.parametrize("dtype", ["float16", "float64", "bool", "int8", "uint16", "uint64", "complex64"])
def test_field_case_33_numbers_become_tensors_read_only_or_not(dtype: str) -> None:
    array = np.arange(8).reshape(4, 2).astype(dtype)
    array.flags.writeable = False
    out = put_get({"x": array, "strided": array[:, ::-1]})
    assert same(out["x"], torch.from_numpy(array.copy()))
    assert same(out["strided"], torch.from_numpy(array[:, ::-1].copy()))


@BOTH
def test_field_case_34_lists_of_equal_length_stay_lists(copy_below: int) -> None:
    first, second = [[1, 2], [3, 4]], [[1, 2], [3]]
    for batches, rows in (([first], first), ([second], second), ([first, second], first + second)):
        out = put_get(*({"x": batch} for batch in batches), copy_below=copy_below)
        assert isinstance(out.get("x"), NonTensorStack)
        assert out.get("x").batch_size == (len(rows),)
        assert_same_rows(out["x"], rows)


def test_field_case_34_lists_of_numbers_stay_python_numbers() -> None:
    assert_same_rows(put_get({"x": [1, 2, 3]})["x"], [1, 2, 3])
    assert_same_rows(put_get({"x": [1, 2.0, True]})["x"], [1, 2.0, True])


@BOTH
def test_field_case_35_identical_strings_stay_rows(copy_below: int) -> None:
    batch = TensorDict({"x": NonTensorStack(*["a"] * 4)}, [4])
    out = put_get(batch, copy_below=copy_below)
    assert list(out["x"]) == ["a"] * 4
    assert [list(part["x"]) for part in out.chunk(2)] == [["a", "a"], ["a", "a"]]
    assert out[0]["x"] == "a"
    assert list(put_get(batch, rows=[3], copy_below=copy_below)["x"]) == ["a"]
    joined = torch.cat([put_get(batch, copy_below=copy_below), TensorDict({"x": NonTensorStack("b")}, [1])])
    assert list(joined["x"]) == ["a", "a", "a", "a", "b"]
    assert list(put_get(batch, {"x": ["b"]}, copy_below=copy_below)["x"]) == ["a", "a", "a", "a", "b"]


def test_field_case_36_a_constant_of_the_batch_is_batch_info() -> None:
    config = {"temperature": 0.7, "stop": ["\n"]}
    plan = plan_put(TensorDict({"x": torch.ones(4), "cfg": NonTensorData("c"), "more": NonTensorData(config)}, [4]))
    assert plan.batch_info == {"cfg": "c", "more": config}
    assert [layout.name for layout in plan.layouts] == ["x"]
    assert plan_put({"x": torch.ones(4), "cfg": "c", "t": 0.7, "none": None}).batch_info == {
        "cfg": "c",
        "t": 0.7,
        "none": None,
    }
    nested = TensorDict({"a": TensorDict({"x": torch.ones(4), "cfg": NonTensorData("c")}, [4])}, [4])
    assert plan_put(nested).batch_info == {"a/cfg": "c"}


def test_field_case_37_a_tensordict_inside_is_stored_by_leaf() -> None:
    batch = TensorDict(
        {
            "field": TensorDict({"a": torch.arange(8).view(4, 2), "u": NonTensorStack("p", "q", "r", "s")}, [4]),
            "deep": TensorDict({"b": TensorDict({"c": jagged(1, 2, 0, 3)}, [4])}, [4]),
            "sized": TensorDict({"d": torch.arange(24).view(4, 2, 3)}, [4, 2]),
            "a/flat": torch.arange(4),
        },
        [4],
    )
    plan = plan_put(batch)
    assert [layout.name for layout in plan.layouts] == ["field/a", "field/u", "deep/b/c", "sized/d", "a/flat"]
    out = put_get(batch, rows=[3, 1])
    assert set(out.keys()) == {"field", "deep", "sized", "a/flat"}
    assert out["field"].batch_size == (2,)
    assert out["sized"].batch_size == (2, 2)
    assert same(out["field", "a"], batch["field", "a"][[3, 1]])
    assert list(out["field", "u"]) == ["s", "q"]
    assert same(out["sized", "d"], batch["sized", "d"][[3, 1]])
    assert [row.tolist() for row in out["deep", "b", "c"].unbind()] == [[3.0, 4.0, 5.0], [1.0, 2.0]]
    assert out["a/flat"].tolist() == [3, 1]


MIB8 = 8 << 20


def test_field_case_38_tensors_inside_python_rows_are_not_copied() -> None:
    rows = [
        {"pixels": torch.full((MIB8 // 4,), float(i)), "array": np.full(1000, i), "meta": ("row", i, 2**70)}
        for i in range(4)
    ]
    plan = plan_put({"x": rows})
    tensors = 4 * (MIB8 + 8000)
    assert tensors < plan.nbytes < tensors + 8 * 1024  # a page to begin on, and skeletons without tensor bytes
    store = FakeStore()
    store.put(plan)
    out, viewed, copied = decode(store.resolve(range(4)), mode="cow", copy_below=1 << 16, allow_pickle=False)  # type: ignore[arg-type]
    assert copied == 0
    assert viewed >= tensors
    assert_same_rows(out["x"], rows)
    memory = store.blocks[0].memory
    start = memory.bytes.ctypes.data
    for row in out["x"]:
        assert start <= row["pixels"].data_ptr() < start + len(memory.bytes)
        assert row["pixels"].data_ptr() % 64 == 0
        assert row["pixels"].untyped_storage().nbytes() == MIB8
        assert start <= row["array"].ctypes.data < start + len(memory.bytes)
    # Rows put one by one, or picked in any order, are views too: no column is made of them.
    for row in rows:
        store.put(plan_put({"x": [row]}))
    _, viewed, copied = decode(store.resolve([5, 4, 1, 7, 0]), mode="cow", copy_below=1 << 16, allow_pickle=False)  # type: ignore[arg-type]
    assert copied == 0
    assert viewed >= 5 * MIB8


def test_field_case_40_what_is_stored_is_what_was_there_at_put() -> None:
    x, y, z = torch.ones(4, 3), torch.ones(3, 4).t(), jagged(1, 2, 3, 4)
    texts = [["a"], ["b"], ["c"], ["d"]]
    objects = [{"t": torch.ones(2)} for _ in range(4)]
    batch = {"x": x, "y": y, "z": z, "texts": texts, "objects": objects}
    store = FakeStore()
    store.put(plan_put(batch))
    x.fill_(7)
    y.fill_(7)
    z.values().fill_(7)
    for i in range(4):
        texts[i][0] = "changed"
        objects[i]["t"].fill_(7)
    out = decode(store.resolve(range(4)), mode="cow", copy_below=1, allow_pickle=False)[0]  # type: ignore[arg-type]
    assert (out["x"] == 1).all()
    assert (out["y"] == 1).all()
    assert_same_rows(out["z"], jagged(1, 2, 3, 4).unbind())
    assert_same_rows(out["texts"], [["a"], ["b"], ["c"], ["d"]])
    assert_same_rows(out["objects"], [{"t": torch.ones(2)}] * 4)


def test_field_case_41_every_get_is_views_of_the_same_bytes() -> None:
    """The codec's part: ten gets of large fields allocate nothing for payload and end their views with the tensors."""
    batch = TensorDict({"x": torch.rand(64, 4096), "j": jagged(*range(300, 364))}, [64])
    store = FakeStore()
    store.put(plan_put(batch))
    memory = store.blocks[0].memory
    start = memory.bytes.ctypes.data
    kept = []
    for _ in range(10):
        out, viewed, copied = decode(store.resolve(range(64)), mode="cow", copy_below=1 << 16, allow_pickle=False)  # type: ignore[arg-type]
        assert copied == 0
        assert viewed == 64 * 4096 * 4 + 4 * sum(range(300, 364))
        for tensor in (out["x"], out["j"].values()):
            assert start <= tensor.data_ptr() < start + len(memory.bytes)
        kept.append(out)
    assert memory.alive == 20
    del out, tensor
    kept.clear()
    assert memory.alive == 0


class Explodes:
    def __reduce__(self) -> Any:
        return _explode, ()


def _explode() -> None:
    raise ZeroDivisionError("in the row's own code")


def test_field_case_42_a_row_whose_unpickle_raises_is_named() -> None:
    store = FakeStore()
    store.put(plan_put({"x": [{1, 2}, {3}, Explodes(), {4}], "y": torch.ones(4)}))
    with pytest.raises(RowDecodeError, match=r"row 2 of field 'x'.*ZeroDivisionError") as caught:
        decode(store.resolve(range(4)), mode="cow", copy_below=1, allow_pickle=True)  # type: ignore[arg-type]
    assert (caught.value.field, caught.value.row) == ("x", 2)
    # The other fields and rows go on.
    assert (
        decode(store.resolve(range(4), ["y"]), mode="cow", copy_below=1, allow_pickle=True)[0]["y"].tolist() == [1] * 4
    )  # type: ignore[arg-type]
    out = decode(store.resolve([0, 3]), mode="cow", copy_below=1, allow_pickle=True)[0]  # type: ignore[arg-type]
    assert list(out["x"]) == [{1, 2}, {4}]


def test_field_case_42_pickle_is_never_run_unasked() -> None:
    store = FakeStore()
    store.put(plan_put({"x": [Explodes()]}))
    with pytest.raises(PickleNotAllowedError, match=r"'x'.*allow_pickle") as caught:
        decode(store.resolve([0]), mode="cow", copy_below=1, allow_pickle=False)  # type: ignore[arg-type]
    assert isinstance(caught.value, ValueError)


def test_field_case_43_the_schema_describes_what_is_stored() -> None:
    """A row overwritten by another type: each block keeps its own schema, and the column is read by both."""
    store = FakeStore()
    store.put(plan_put({"x": ["file://1", "file://2", "file://3"]}))
    plan = plan_put({"x": torch.arange(4.0)[None]})
    assert schema_dict(plan.schemas["x"]) == {
        "dtype": "float32",
        "shape": [4],
        "is_nested": False,
        "is_non_tensor": False,
    }
    store.put(plan, rows=[1])
    out = decode(store.resolve(range(3)), mode="cow", copy_below=1, allow_pickle=False)[0]  # type: ignore[arg-type]
    assert_same_rows(out.get("x"), ["file://1", torch.arange(4.0), "file://3"])
    assert same(
        decode(store.resolve([1]), mode="cow", copy_below=1, allow_pickle=False)[0]["x"], torch.arange(4.0)[None]
    )  # type: ignore[arg-type]


def test_lazy_stacks_of_batches_are_put_row_by_row() -> None:
    rows = [TensorDict({"x": torch.full((3,), i), "y": torch.ones(i), "u": f"u{i}"}, []) for i in range(4)]
    batch = LazyStackedTensorDict.lazy_stack(rows)
    out = put_get(batch)
    assert same(out["x"], torch.arange(4.0)[:, None].expand(4, 3).contiguous().long().to(rows[0]["x"].dtype))
    assert_same_rows(out.get("y"), [torch.ones(i) for i in range(4)])
    assert list(out["u"]) == [f"u{i}" for i in range(4)]
