"""A `DataProto` as programs use it: parts, rows, columns, conversions, files."""

from __future__ import annotations

import pickle
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from transferqueue.errors import SchemaMismatchError
from transferqueue.workers import DataProto, DataProtoConfig, DataProtoError, DataProtoItem, DataProtoKeyError
from transferqueue.workers.data_proto import (
    collate_fn,
    fold_batch_dim,
    pad_dataproto_to_divisor,
    unfold_batch_dim,
    union_numpy_dict,
    union_tensor_dict,
    unpad_dataproto,
)


def jagged(*lengths: int) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.arange(n) + 10 * n for n in lengths], layout=torch.jagged)


def batch_of(rows: int) -> DataProto:
    return DataProto.from_dict(
        {"x": torch.arange(rows), "wide": torch.arange(2 * rows).reshape(rows, 2)},
        {"uid": [f"u{i}" for i in range(rows)]},
        {"temperature": 0.5},
    )


def ragged_of(*lengths: int) -> DataProto:
    return DataProto.from_tensordict(TensorDict({"r": jagged(*lengths), "n": torch.tensor(lengths)}, [len(lengths)]))


def lists(data: DataProto) -> tuple[list[Any], list[Any]]:
    return data.batch["x"].tolist(), data.non_tensor_batch["uid"].tolist()


def row_lists(column: torch.Tensor) -> list[list[int]]:
    return [row.tolist() for row in column.unbind()]


def test_parts_must_fit_and_say_how_they_do_not() -> None:
    assert (len(batch_of(3)), len(DataProto()), len(DataProto(non_tensor_batch={"a": np.zeros(4)}))) == (3, 0, 4)
    with pytest.raises(AssertionError, match=r"'uid' in non_tensor_batch has 2 rows, the batch 3"):
        DataProto(TensorDict({"x": torch.zeros(3)}, [3]), {"uid": np.array(["a", "b"], dtype=object)})
    with pytest.raises(DataProtoError, match="'uid' is a list"):
        DataProto(non_tensor_batch={"uid": ["a"]})
    with pytest.raises(AssertionError, match=r"num_batch_dims=1.*\[2, 3\]"):
        DataProto(TensorDict({}, [2, 3]))
    with pytest.raises(AssertionError, match="x has 3, y has 2"):
        DataProto.from_dict({"x": torch.zeros(3), "y": torch.zeros(2)})
    with pytest.raises(AssertionError, match="num_batch_dims"):
        DataProto.from_dict({"x": torch.zeros(3, 2)}, num_batch_dims=2)
    with pytest.raises(ValueError, match=r"list.*'y'"):
        DataProto.from_single_dict({"x": torch.zeros(1), "y": [1]})
    single = DataProto.from_single_dict({"x": torch.zeros(1), "y": np.array(["s"], dtype=object)}, {"k": 1})
    assert (set(single.batch.keys()), single.non_tensor_batch["y"].tolist(), single.meta_info) == (
        {"x"},
        ["s"],
        {"k": 1},
    )


def test_rows_are_taken_by_slice_index_and_mask() -> None:
    data = batch_of(5)
    assert lists(data[1:4:2]) == ([1, 3], ["u1", "u3"])
    for index in ([3, -5], np.array([3, 0]), torch.tensor([3, 0])):
        assert lists(data[index]) == ([3, 0], ["u3", "u0"])
    for mask in ([True, False, False, False, True], torch.tensor([1, 0, 0, 0, 1]).bool()):
        assert lists(data[mask]) == ([0, 4], ["u0", "u4"])
    assert (len(data[[]]), data[[]].meta_info) == (0, {"temperature": 0.5})
    item = data[-1]
    assert isinstance(item, DataProtoItem)
    assert (item.batch["x"].item(), item.non_tensor_batch, item.meta_info) == (4, {"uid": "u4"}, {"temperature": 0.5})
    with pytest.raises(IndexError, match="row 5 of a DataProto with 5 rows"):
        data[5]
    with pytest.raises(IndexError, match="row -6"):
        data[[0, -6]]
    with pytest.raises(AssertionError, match="mask"):
        data[[True]]
    with pytest.raises(TypeError, match="str"):
        data["x"]


def test_ragged_rows_survive_every_way_of_taking_them() -> None:
    data = ragged_of(2, 0, 3, 1)
    rows = row_lists(data.batch["r"])
    assert row_lists(data[1:3].batch["r"]) == rows[1:3]
    assert row_lists(data[[3, 0, 0]].batch["r"]) == [rows[3], rows[0], rows[0]]
    pieces = data.chunk(2)
    assert [row_lists(piece.batch["r"]) for piece in pieces] == [rows[:2], rows[2:]]
    assert row_lists(DataProto.concat(pieces[::-1]).batch["r"]) == rows[2:] + rows[:2]
    data.reorder(torch.tensor([1, 0, 3, 2]))
    assert row_lists(data.batch["r"]) == [rows[1], rows[0], rows[3], rows[2]]
    assert row_lists(pickle.loads(pickle.dumps(data[1:])).batch["r"]) == [rows[0], rows[3], rows[2]]


def test_chunk_is_even_unless_asked_and_concat_is_its_reverse() -> None:
    data = batch_of(6)
    with pytest.raises(AssertionError, match=r"only support equal chunk\. Got size of DataProto 6 and chunk 5"):
        data.chunk(5)
    for parts in (1, 2, 5, 6, 8):
        pieces = data.chunk(parts, uneven=True)
        sizes = [len(piece) for piece in pieces]
        assert (len(sizes), sum(sizes), max(sizes) - min(sizes) <= 1) == (parts, 6, True)
        joined = DataProto.concat(pieces)
        assert lists(joined) == lists(data)
        assert joined.meta_info == data.meta_info
    pieces = data.chunk(2)
    pieces[0].meta_info["temperature"] = 1.0
    assert data.meta_info == pieces[1].meta_info == {"temperature": 0.5}
    assert [len(piece) for piece in data.split(4)] == [4, 2]
    padded = DataProto.from_dict({"x": torch.arange(3)}, auto_padding=True)
    assert [len(piece) for piece in padded.chunk(2)] == [2, 1], "where padding is enabled pieces may differ"
    assert len(DataProto.concat([])) == 0
    only_columns = DataProto(non_tensor_batch={"a": np.arange(4)})
    assert [piece.non_tensor_batch["a"].tolist() for piece in only_columns.chunk(2)] == [[0, 1], [2, 3]]


def test_concat_unites_batch_wide_values_and_keeps_every_ranks_metrics() -> None:
    def piece(x: int, **info: Any) -> DataProto:
        return DataProto.from_dict({"x": torch.tensor([x])}, meta_info=info)

    joined = DataProto.concat(
        [
            piece(0, a=1),
            piece(1, metrics={"loss": 0.6}, b=float("nan")),
            piece(2, metrics=[{"loss": 0.5, "kl": 2}], a=1),
        ]
    )
    assert joined.meta_info.pop("b") != joined.meta_info
    assert joined.meta_info == {"a": 1, "metrics": {"loss": [0.6, 0.5], "kl": [2]}}
    with pytest.raises(AssertionError, match="Conflicting values for meta_info key 'a'"):
        DataProto.concat([piece(0, a=1), piece(1, a=2)])
    with pytest.raises(DataProtoError, match=r"metrics.*float"):
        DataProto.concat([piece(0, metrics=1.0), piece(1)])
    with pytest.raises(DataProtoError, match=r"\['a'\] and \['b'\]"):
        DataProto.concat([DataProto(non_tensor_batch={name: np.zeros(1)}) for name in ("a", "b")])
    with pytest.raises(DataProtoError, match="some pieces have a tensor batch"):
        DataProto.concat([piece(0), DataProto(non_tensor_batch={"uid": np.zeros(1)})])
    with pytest.raises(SchemaMismatchError, match="'x'"):
        DataProto.concat([piece(0), DataProto.from_dict({"x": torch.zeros(1, 2)})])


def test_columns_are_chosen_taken_out_renamed_and_united() -> None:
    data = batch_of(2)
    chosen = data.select(["x"], ["uid"], [])
    assert (set(chosen.batch.keys()), set(chosen.non_tensor_batch), chosen.meta_info) == ({"x"}, {"uid"}, {})
    deep = data.select(deepcopy=True)
    assert deep.non_tensor_batch["uid"] is not data.non_tensor_batch["uid"]
    with pytest.raises(KeyError, match="'nothing'"):
        data.select(["nothing"])
    with pytest.raises(AssertionError, match="batch has no 'nothing'"):
        data.pop(["x", "nothing"])
    assert "x" in data.batch.keys(), "nothing was taken out"
    popped = data.pop(["wide"], ["uid"], ["temperature"])
    assert (set(popped.batch.keys()), set(popped.non_tensor_batch), popped.meta_info) == (
        {"wide"},
        {"uid"},
        {"temperature": 0.5},
    )
    assert (set(data.batch.keys()), data.non_tensor_batch, data.meta_info) == ({"x"}, {}, {})
    assert data.union(popped) is data
    assert (set(data.batch.keys()), set(data.non_tensor_batch), data.meta_info) == (
        {"x", "wide"},
        {"uid"},
        {"temperature": 0.5},
    )
    assert data.rename(["x", "wide"], ["wide", "x"]) is data
    assert data.batch["wide"].tolist() == [0, 1]
    with pytest.raises(ValueError, match="2 and 1"):
        data.rename("x", ["a", "b"])
    with pytest.raises(TypeError, match="tuple"):
        data.rename(("x",), ["a"])  # type: ignore[arg-type]
    with pytest.raises(DataProtoError, match="not free"):
        data.rename("x", "wide")


def test_union_refuses_what_differs_and_changes_nothing_then() -> None:
    data = batch_of(2)
    for other in (
        DataProto.from_dict({"new": torch.zeros(2), "x": torch.tensor([0, 5])}),
        DataProto.from_dict({"new": torch.zeros(2)}, {"uid": ["u0", "other"]}),
        DataProto.from_dict({"new": torch.zeros(2)}, meta_info={"temperature": 1.0}),
        DataProto.from_dict({"new": torch.zeros(3)}),
    ):
        with pytest.raises(AssertionError):
            data.union(other)
        assert set(data.batch.keys()) == {"x", "wide"}
    with pytest.raises(AssertionError, match="batch sizes"):
        union_tensor_dict(TensorDict({}, [1]), TensorDict({}, [2]))
    inside = np.array([1.0, np.nan])
    same = [np.array([1, "a", inside.copy(), {"k": [np.nan]}], dtype=object) for _ in range(2)]
    union_numpy_dict({"a": same[0]}, {"a": same[1], "b": inside})
    with pytest.raises(AssertionError, match="`a`"):
        union_numpy_dict({"a": same[0]}, {"a": np.array([1, "a", inside + 1, {"k": [np.nan]}], dtype=object)})
    loops = [np.array([None], dtype=object) for _ in range(2)]
    for loop in loops:
        loop[0] = loop
    union_numpy_dict({"a": loops[0]}, {"a": loops[1]})


def test_repeating_and_reordering() -> None:
    data = batch_of(2)
    assert lists(data.repeat(2)) == ([0, 0, 1, 1], ["u0", "u0", "u1", "u1"])
    assert lists(data.repeat(2, interleave=False)) == ([0, 1, 0, 1], ["u0", "u1", "u0", "u1"])
    for times in ([0, 3], (0, 3), np.array([0, 3]), torch.tensor([0, 3])):
        assert lists(data.sample_level_repeat(times)) == ([1, 1, 1], ["u1", "u1", "u1"])
    with pytest.raises(AssertionError, match="one number each"):
        data.sample_level_repeat([1])
    with pytest.raises(AssertionError, match="int"):
        data.sample_level_repeat(2)
    data.reorder(torch.tensor([1, 0]))
    assert lists(data) == ([1, 0], ["u1", "u0"])
    assert row_lists(ragged_of(1, 2).repeat(2).batch["r"]) == [[10], [10], [20, 21], [20, 21]]


def test_folding_groups_of_rows_and_back() -> None:
    data = batch_of(4)
    folded = fold_batch_dim(data, 2)
    assert (len(folded), folded.batch["wide"].shape, folded.non_tensor_batch["uid"].shape) == (2, (2, 2, 2), (2, 2))
    back = unfold_batch_dim(folded)
    assert lists(back) == lists(data)
    assert data.non_tensor_batch["uid"].shape == (4,), "the caller's object is as it was"
    assert folded.batch.batch_size == (2,)
    with pytest.raises(AssertionError, match="4 rows cannot be folded into 3"):
        fold_batch_dim(data, 3)
    chunks = DataProto.from_dict(
        {"a": torch.arange(8).reshape(2, 4), "b": torch.tensor([1, 2])}, {"l": [["p", "q"], ["r", "s"]]}
    ).unfold_column_chunks(2, ["a", "l"])
    assert chunks.batch["a"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert chunks.batch["b"].tolist() == [1, 1, 2, 2]
    assert chunks.non_tensor_batch["l"].tolist() == [["p"], ["q"], ["r"], ["s"]]
    with pytest.raises(AssertionError, match="'x'"):
        data.unfold_column_chunks(2, ["x"])


def test_padding_and_its_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    data = batch_of(3)
    padded, added = pad_dataproto_to_divisor(data, 8)
    assert (lists(padded)[0], added) == ([0, 1, 2, 0, 1, 2, 0, 1], 5)
    assert lists(unpad_dataproto(padded, added)) == lists(data)
    assert pad_dataproto_to_divisor(data, 3)[0] is data
    assert pad_dataproto_to_divisor(data[:0], 3)[1] == 0
    with pytest.raises(AssertionError, match="list"):
        pad_dataproto_to_divisor([], 2)  # type: ignore[arg-type]
    data.padding(2)
    assert lists(data)[0] == [0, 1, 2, 2, 2]
    data.padding(1, "first")
    assert lists(data)[1][-1] == "u0"

    assert not data.is_padding_enabled()
    info: dict[str, Any] = {}
    assert DataProto(data.batch, meta_info=info, auto_padding=True).is_padding_enabled()
    assert info == {}, "the caller's dict is as it was"
    monkeypatch.setenv("VERL_AUTO_PADDING", "true")
    assert data.is_padding_enabled()
    monkeypatch.delenv("VERL_AUTO_PADDING")
    assert not data.is_padding_enabled()
    try:
        DataProtoConfig.auto_padding = True
        assert data.is_padding_enabled()
    finally:
        DataProtoConfig.auto_padding = False
    with pytest.raises(AssertionError, match="is True or False"):
        DataProtoConfig.auto_padding = 1  # type: ignore[assignment]


def test_iterator_goes_over_all_rows_as_a_seeded_loader_does() -> None:
    data = batch_of(6)

    def passes(**kwargs: Any) -> list[list[int]]:
        return [batch.batch["x"].tolist() for batch in data.make_iterator(2, 2, **kwargs)]

    assert passes() == [[0, 1], [2, 3], [4, 5]] * 2
    shuffled = passes(seed=1, dataloader_kwargs={"shuffle": True})
    assert shuffled == passes(seed=1, dataloader_kwargs={"shuffle": True})
    assert sorted(chain(*shuffled[:3])) == sorted(chain(*shuffled[3:])) == list(range(6))
    assert shuffled[:3] != shuffled[3:]
    batch = next(data.make_iterator(3, 1))
    assert (batch.non_tensor_batch["uid"].tolist(), batch.meta_info) == (["u0", "u1", "u2"], data.meta_info)
    with pytest.raises(AssertionError, match="6 % 4 != 0"):
        data.make_iterator(4, 1)
    ragged = ragged_of(1, 2)
    assert row_lists(next(ragged.make_iterator(2, 1)).batch["r"]) == row_lists(ragged.batch["r"])
    collated = collate_fn([data[0], data[2]])
    assert lists(collated) == ([0, 2], ["u0", "u2"])
    equal_lists = DataProto.from_dict({"x": torch.zeros(2)}, {"l": np.array([{"a": [1]}, {"a": [2]}], dtype=object)})
    assert collate_fn([equal_lists[0], equal_lists[1]]).non_tensor_batch["l"].tolist() == [{"a": [1]}, {"a": [2]}]


def test_to_and_from_tensordict() -> None:
    data = batch_of(3)
    data.non_tensor_batch["turns"] = np.array([[1], [2, 3], []], dtype=object)
    data.meta_info["names"] = ["a", "b", "c"]
    batch = data.to_tensordict()
    assert (batch.batch_size, batch["uid"], batch.get("turns").tolist()) == (
        (3,),
        ["u0", "u1", "u2"],
        [[1], [2, 3], []],
    )
    assert (batch["temperature"], batch["names"]) == (0.5, ["a", "b", "c"])
    back = DataProto.from_tensordict(batch, {"more": 1})
    assert lists(back) == lists(data)
    assert back.non_tensor_batch["turns"].tolist() == [[1], [2, 3], []]
    assert back.meta_info == {"temperature": 0.5, "names": ["a", "b", "c"], "more": 1}
    assert back.batch["x"].data_ptr() == data.batch["x"].data_ptr(), "tensors are shared"
    empty = DataProto.from_tensordict(data[:0].to_tensordict())
    assert (len(empty), set(empty.non_tensor_batch)) == (0, {"uid", "turns"})
    data.meta_info["x"] = 1
    with pytest.raises(AssertionError, match=r"\['x'\] of meta_info"):
        data.to_tensordict()
    only_columns = DataProto.from_tensordict(TensorDict({"u": NonTensorStack("a", "b"), "k": NonTensorData(1)}, [2]))
    assert (len(only_columns), only_columns.batch, only_columns.meta_info) == (2, None, {"k": 1})


def test_saved_and_pickled_with_its_own_bytes_only(tmp_path: Path) -> None:
    large = DataProto.from_dict(
        {"w": torch.randn(1000, 100).bfloat16(), "e": torch.zeros(1000, 0), "b": torch.zeros(1000, dtype=torch.bool)}
    )
    large.batch["r"] = jagged(*[3] * 1000)
    large.batch["inner"] = TensorDict({"a": torch.arange(1000)}, [1000])
    large.batch["text"] = NonTensorStack(*map(str, range(1000)))
    piece = large[10:12]
    state = pickle.dumps(piece)
    assert len(state) < 10_000
    back = pickle.loads(state)
    assert torch.equal(back.batch["w"], large.batch["w"][10:12])
    assert (back.batch["e"].shape, back.batch["b"].dtype) == ((2, 0), torch.bool)
    assert (back.batch["inner", "a"].tolist(), back.batch["text"]) == ([10, 11], ["10", "11"])
    back.batch["w"].fill_(7)  # private memory
    file = tmp_path / "batch.pkl"
    batch_of(2).save_to_disk(file)
    assert lists(DataProto.load_from_disk(file)) == ([0, 1], ["u0", "u1"])
    empty = pickle.loads(pickle.dumps(DataProto(TensorDict({}, [3]), meta_info={"a": 1})))
    assert (len(empty), empty.meta_info) == (3, {"a": 1})
    grown = torch.ones(2, requires_grad=True) * 2
    assert not pickle.loads(pickle.dumps(DataProto.from_dict({"g": grown}))).batch["g"].requires_grad


def test_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    data = batch_of(2)
    data.meta_info.update(nested={"a": [1, "b"]}, array=np.zeros(2), pair=(1, 2.0), nothing=[])
    assert data.get_data_info().splitlines() == [
        "batch",
        "  x: (2,) (torch.int64) cpu",
        "  wide: (2, 2) (torch.int64) cpu",
        "non_tensor_batch",
        "  uid: ndarray(2,) (object)",
        "meta_info",
        "  temperature: float",
        "  nested: dict[str: list[int|str]]",
        "  array: ndarray(2,) (float64)",
        "  pair: tuple(int, float)",
        "  nothing: list[...]",
    ]
    assert "rows=2, batch=['wide', 'x'], non_tensor_batch=['uid']" in repr(data)
    data.print_size("now")
    assert capsys.readouterr().out.startswith("now, Size of tensordict: ")
    assert data.to("cpu") is data


def test_errors_are_what_programs_catch() -> None:
    error = DataProtoKeyError("no", fields=("x",))
    assert isinstance(error, (AssertionError, KeyError, ValueError))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.fields, str(again)) == (DataProtoKeyError, ("x",), "no")
