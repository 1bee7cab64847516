"""Metadata of the compatible face: what differs from the native classes, and that the two go together."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

import transferqueue as native
from transferqueue.compat.transfer_queue.metadata import BatchMeta, KVBatchMeta

SCHEMA: Any = {"f": {"dtype": torch.float32, "shape": (2,), "is_nested": False, "is_non_tensor": False}}


def three(**options: Any) -> BatchMeta:
    given: dict[str, Any] = {"field_schema": SCHEMA, "production_status": np.ones(3, dtype=np.int8), **options}
    return BatchMeta([4, 5, 6], ["p"] * 3, **given)


def test_without_arguments_it_is_empty() -> None:
    for meta in (BatchMeta(), BatchMeta.empty(), BatchMeta.empty({"step": 1})):
        assert meta.size == len(meta) == 0
        assert not meta
        assert not meta.is_ready
        assert meta.field_names == []
        assert [piece.size for piece in meta.chunk(3)] == [0, 0, 0]
    assert BatchMeta.empty({"step": 1}).extra_info == {"step": 1}


def test_a_one_dimensional_column_has_the_row_shape_1() -> None:
    meta = three().add_fields(TensorDict({"r": torch.rand(3), "m": torch.rand(3, 4)}, [3]))
    assert meta.field_schema["r"]["shape"] == (1,)
    assert meta.field_schema["m"]["shape"] == (4,)
    assert meta.get_shapes("r") == [(1,)] * 3
    assert meta.samples[0].fields["r"]["shape"] == (1,)
    # What a program itself says is shown as it is.
    given = BatchMeta([1, 2], ["p", "p"], {"s": {"dtype": torch.float32, "shape": ()}})
    for shown in (given, pickle.loads(pickle.dumps(given)), given[1:], BatchMeta.concat([given, given])):
        assert shown.field_schema["s"]["shape"] == ()
        assert "per_sample_shapes" not in shown.field_schema["s"]
        assert shown.get_shapes("s") == [()] * shown.size


def test_values_that_differ_are_refused_by_concat_and_collected_by_the_native_one() -> None:
    pieces = [three(extra_info={"step": step, "same": 1}) for step in (1, 2)]
    with pytest.raises(ValueError, match="conflicting values"):
        BatchMeta.concat(pieces)
    joined = BatchMeta.concat([pieces[0], BatchMeta(), three(extra_info={"same": 1, "more": [2]})])
    assert joined.extra_info == {"step": 1, "same": 1, "more": [2]}
    assert native.BatchMeta.concat(pieces).extra_info == {"step": [1, 2], "same": 1}
    keyed = [KVBatchMeta(keys=[key], tags=[{}], extra_info={"step": key}) for key in "ab"]
    with pytest.raises(ValueError, match="conflicting"):
        KVBatchMeta.concat(keyed)
    assert native.KVBatchMeta.concat(keyed).extra_info == {"step": ["a", "b"]}
    assert KVBatchMeta.concat([]).size == BatchMeta.concat([]).size == 0


def test_concat_checks_fields_and_types() -> None:
    other = {"f": {**SCHEMA["f"], "dtype": torch.int64}}
    with pytest.raises(ValueError, match="dtype"):
        BatchMeta.concat([three(), three(field_schema=other)])
    with pytest.raises(ValueError, match="field_names"):
        BatchMeta.concat([three(), three(field_schema={})])
    assert BatchMeta.concat([three(), three(field_schema={})], validate=False).size == 6
    nested = {"f": {**SCHEMA["f"], "is_nested": True, "shape": None, "per_sample_shapes": [(1,), (2,), (3,)]}}
    joined = BatchMeta.concat([three(), three(field_schema=nested)])
    assert joined.field_schema["f"]["is_nested"] is True
    assert joined.field_schema["f"]["per_sample_shapes"] == [(2,)] * 3 + [(1,), (2,), (3,)]


def test_every_operation_gives_this_class() -> None:
    meta = three()
    made = [meta.copy(), copy.deepcopy(meta), meta[0], meta[1:], meta.chunk(2)[0], meta.select_fields(["f", "unknown"])]
    made += [meta.select_samples([2, 0]), meta.union(three()), BatchMeta.concat([meta, meta[:1]])]
    made += [pickle.loads(pickle.dumps(meta)), meta.chunk_by_partition()[0]]
    assert {type(piece) for piece in made} == {BatchMeta}
    keyed = KVBatchMeta(["a", "b"], [{}, {}], "p", ["x"], {"n": 1})
    both = [keyed.select_keys(["b"]), keyed.chunk(2)[0], KVBatchMeta.concat([keyed, KVBatchMeta()])]
    both.append(pickle.loads(pickle.dumps(keyed)))
    assert {type(piece) for piece in both} == {KVBatchMeta}
    assert dataclasses.is_dataclass(KVBatchMeta)
    assert [field.name for field in dataclasses.fields(KVBatchMeta)][:5] == [
        "keys",
        "tags",
        "partition_id",
        "fields",
        "extra_info",
    ]


def test_the_state_tuple_follows_the_slots_and_makes_states_writable() -> None:
    state = list(three().__getstate__())
    position = list(BatchMeta.__slots__).index("production_status")
    frozen = np.array(state[position])
    frozen.flags.writeable = False
    state[position] = frozen
    restored = BatchMeta.__new__(BatchMeta)
    restored.__setstate__(tuple(state))
    restored.production_status[0] = 0
    assert restored.global_indexes == [4, 5, 6]
    assert not restored.is_ready


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: BatchMeta([1], ["p", "p"]), ValueError, None),
        (lambda: three(production_status=[1]), ValueError, None),
        (lambda: three(custom_meta=[{}]), ValueError, None),
        (lambda: three().union(BatchMeta([4, 5, 7], ["p"] * 3)), ValueError, "global_indexes do not match"),
        (lambda: three().union(BatchMeta([4, 5, 6], ["q"] * 3)), ValueError, "partition_ids do not match"),
        (lambda: three().select_samples([3]), ValueError, None),
        (lambda: three()[3], IndexError, None),
        (lambda: three()["f"], TypeError, None),
        (lambda: three().get_dtypes("g"), KeyError, None),
        (lambda: three().get_shapes("g"), KeyError, None),
        (lambda: three().reorder([0, 0, 1]), ValueError, None),
        (lambda: three().reorder([0, 1]), ValueError, None),
        (lambda: three().update_custom_meta([{}]), ValueError, None),
        (lambda: three().add_fields(TensorDict({"g": torch.ones(2)}, [2])), ValueError, None),
        (lambda: KVBatchMeta(["a"], []), ValueError, "keys and tags must have same length"),
        (lambda: KVBatchMeta(["a", "a"], [{}, {}]), ValueError, "Got duplicated keys"),
        (lambda: KVBatchMeta(["a"], [{}], fields=["x", "x"]), ValueError, "Got duplicated fields"),
        (lambda: KVBatchMeta(["a"], [{}]).select_keys(["a", "a"]), ValueError, "Contain duplicate keys"),
        (lambda: KVBatchMeta(["a"], [{}]).select_keys(["b"]), RuntimeError, "not found in current batch"),
        (lambda: KVBatchMeta(["a"], [{}]).reorder([0, 1]), ValueError, "does not match"),
        (lambda: KVBatchMeta(["a", "b"], [{}, {}]).reorder([0, 0]), ValueError, "Contain duplicate indexes"),
    ],
)
def test_what_is_refused_and_how(call: Any, error: type[Exception], match: str | None) -> None:
    with pytest.raises(error, match=match):
        call()


def test_concat_of_keys_checks_partition_and_fields() -> None:
    one = KVBatchMeta(["a"], [{}], "p", ["x"])
    with pytest.raises(ValueError, match="Partition do not match"):
        KVBatchMeta.concat([one, KVBatchMeta(["b"], [{}], "q", ["x"])])
    with pytest.raises(ValueError, match="Field names do not match"):
        KVBatchMeta.concat([one, KVBatchMeta(["b"], [{}], "p", ["y"])])


def test_from_the_native_class_and_back() -> None:
    given = native.BatchMeta([4, 5, 6], "p", SCHEMA, [1, 1, 0], {"n": 1}, [{"t": 0}, {}, {}], session="s")
    meta = BatchMeta.of(given.copy())
    assert type(meta) is BatchMeta
    assert isinstance(meta, native.BatchMeta)
    assert meta == given
    assert meta.session == "s"
    keyed = native.KVBatchMeta(["a"], [{"t": 1}], "p", session="s")
    assert KVBatchMeta.of(keyed.copy()) == keyed


def test_what_stands_in_a_pickle_loads_by_the_name_of_this_package() -> None:
    for meta in (three(), KVBatchMeta(["a"], [{}])):
        assert b"transferqueue.compat.transfer_queue.metadata" in pickle.dumps(meta)
