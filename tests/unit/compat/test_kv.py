"""Rows by key: what is returned, left out and refused, in the words of the surface."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from transferqueue.compat import transfer_queue as tq

pytestmark = pytest.mark.usefixtures("client")
KEYS = ["a", "b", "c"]


def put_three(partition: str = "p", **fields: Any) -> tq.KVBatchMeta:
    columns = fields or {"x": torch.arange(3), "y": torch.arange(6.0).view(3, 2)}
    return tq.kv_batch_put(KEYS, partition, TensorDict(columns, [3]))


def test_a_put_of_a_dict_takes_tensors_as_values_and_keeps_all_else_as_objects() -> None:
    meta = tq.kv_put(
        "k",
        "p",
        {"t": torch.tensor([1, 2]), "s": torch.tensor(3.0), "i": 5, "array": np.arange(3), "none": None, "d": {"q": 1}},
        {"step": 1},
    )
    assert type(meta) is tq.KVBatchMeta
    assert meta.fields == ["array", "d", "i", "none", "s", "t"]
    row = tq.kv_batch_get("k", "p")
    assert row.batch_size == (1,)
    assert row["t"].is_nested
    assert row["t"].layout is torch.jagged
    assert [value.tolist() for value in row["t"].unbind()] == [[1, 2]]
    assert torch.equal(row["s"], torch.tensor([3.0]))
    assert row["i"] == [5]
    assert isinstance(row.get("array"), NonTensorStack)
    assert np.array_equal(row["array"][0], np.arange(3))
    assert row["none"] == [None]
    assert row["d"] == [{"q": 1}]


def test_fields_and_tags_add_up() -> None:
    put_three()
    meta = tq.kv_batch_put(KEYS, "p", TensorDict({"z": torch.ones(3)}, [3]), [{"n": 1}, {}, {}])
    assert meta.fields == ["x", "y", "z"]
    meta = tq.kv_put("a", "p", None, {"m": 2})
    assert meta.tags == [{"n": 1, "m": 2}]
    # Of what every key of the call has.
    tq.kv_put("a", "p", {"only": torch.tensor(1)})
    assert tq.kv_batch_put(["a", "b"], "p", None, [{}, {}]).fields == ["x", "y", "z"]


def test_keys_and_fields_that_do_not_exist_are_left_out() -> None:
    put_three()
    batch = tq.kv_batch_get(["zz", "c", "a", "c"], "p", ["x", "nothing"])
    assert batch["x"].tolist() == [2, 0, 2]
    assert set(batch.keys()) == {"x"}
    none = tq.kv_batch_get(KEYS, "p", "nothing")
    assert none.batch_size == (0,)
    assert not list(none.keys())


def test_without_select_fields_those_come_that_all_keys_have() -> None:
    put_three()
    tq.kv_put("a", "p", {"more": torch.tensor(1)})
    assert set(tq.kv_batch_get(KEYS, "p").keys()) == {"x", "y"}


@pytest.mark.parametrize("keys", [["zz"], "zz"])
def test_no_key_found_is_an_error(keys: Any) -> None:
    put_three()
    with pytest.raises(ValueError, match="keys or partition were not found!"):
        tq.kv_batch_get(keys, "p")
    with pytest.raises(ValueError, match="keys or partition were not found!"):
        tq.kv_batch_get(keys, "no such partition")


@pytest.mark.parametrize("fields", [None, ["x"]])
def test_a_key_without_data_is_an_error(fields: Any) -> None:
    put_three()
    tq.kv_put("tag only", "p", None, {"z": 1})
    with pytest.raises(ValueError, match="not ready"):
        tq.kv_batch_get(["a", "tag only"], "p", fields)


@pytest.mark.parametrize(("keys", "error"), [([], ValueError), (("a",), TypeError), (["a", 1], TypeError)])
def test_keys_are_a_str_or_a_list_of_str(keys: Any, error: type[Exception]) -> None:
    for call in (tq.kv_batch_get, tq.kv_clear, tq.get_client().kv_retrieve_meta):
        with pytest.raises(error):
            call(keys, "p")
    with pytest.raises(error):
        tq.kv_batch_put(keys, "p", None, [{}])


def test_a_put_is_checked() -> None:
    one = TensorDict({"x": torch.ones(1)}, [1])
    two = TensorDict({"x": torch.ones(2)}, [2])
    with pytest.raises(ValueError, match="at least one"):
        tq.kv_put("k", "p")
    with pytest.raises(ValueError, match="at least one"):
        tq.kv_batch_put(["k"], "p")
    with pytest.raises(ValueError, match="kv_batch_put"):
        tq.kv_put("k", "p", {"n": torch.nested.nested_tensor([torch.ones(1)], layout=torch.jagged)})
    with pytest.raises(ValueError):
        tq.kv_put("k", "p", two)
    with pytest.raises(ValueError):
        tq.kv_put("k", "p", [1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="does not match"):
        tq.kv_batch_put(["k"], "p", two)
    with pytest.raises(ValueError, match="does not match"):
        tq.kv_batch_put(["k"], "p", one, [{}, {}])
    with pytest.raises(ValueError, match="Got duplicated keys"):
        tq.kv_batch_put(["k", "k"], "p", two)
    with pytest.raises(AttributeError):
        tq.kv_batch_put(["k"], "p", {"x": torch.ones(1)})  # type: ignore[arg-type]


def test_a_data_parser_sees_columns_and_keeps_their_names_and_lengths() -> None:
    seen = {}

    def parse(columns: dict[str, Any]) -> dict[str, Any]:
        seen.update({name: type(column) for name, column in columns.items()})
        return {"x": columns["x"] * 10, "s": [text.upper() for text in columns["s"]]}

    tq.kv_batch_put(["k", "l"], "p", TensorDict({"x": torch.ones(2), "s": ["u", "v"]}, [2]), data_parser=parse)
    assert seen == {"x": torch.Tensor, "s": list}
    batch = tq.kv_batch_get(["k", "l"], "p")
    assert batch["x"].tolist() == [10, 10]
    assert batch["s"] == ["U", "V"]
    with pytest.raises(RuntimeError, match="data_parser"):
        tq.kv_put("k", "p", {"x": 1}, data_parser=lambda columns: {})


def test_by_meta_its_fields_limit_what_is_read() -> None:
    meta = put_three()
    meta.fields = ["y"]
    assert set(tq.kv_batch_get_by_meta(meta).keys()) == {"y"}
    with pytest.raises(ValueError, match=r"select_fields.*not found"):
        tq.kv_batch_get_by_meta(meta, "x")
    meta.partition_id = None
    with pytest.raises(ValueError):
        tq.kv_batch_get_by_meta(meta)


def test_a_list_shows_partitions_until_they_are_cleared() -> None:
    put_three("p")
    tq.kv_put("k", "q", None, {"n": 1})
    assert tq.kv_list() == {"p": {"a": {}, "b": {}, "c": {}}, "q": {"k": {"n": 1}}}
    assert list(tq.kv_list("p")["p"]) == KEYS
    assert tq.kv_list("nothing") == {}
    tq.kv_clear([*KEYS, "zz", "a"], "p")
    tq.kv_clear(KEYS, "p")
    tq.kv_clear("a", "no such partition")
    assert tq.kv_list("p") == {"p": {}}
    tq.get_client().clear_partition("p")
    assert tq.kv_list("p") == {}


def test_a_list_in_a_constant_of_the_batch_is_a_column() -> None:
    put_three(l=NonTensorData([{"i": 0}, {"i": 1}, {"i": 2}], batch_size=[3]), x=torch.ones(3))
    assert tq.kv_batch_get(["c", "a"], "p")["l"] == [{"i": 2}, {"i": 0}]


def test_a_warm_up_write_leaves_nothing_behind_and_fixes_no_type() -> None:
    def warm_up() -> None:
        tq.kv_batch_put(["warm"], "p", TensorDict({"x": torch.zeros(1), "s": torch.zeros(1)}, [1]))
        tq.kv_clear("warm", "p")

    warm_up()
    tq.kv_batch_put(KEYS, "p", TensorDict({"x": torch.ones(3, 2, dtype=torch.int64), "s": ["u", "v", "w"]}, [3]))
    warm_up()
    assert tq.get_client().get_meta(["x"], 4, "p", task_name="t").size == 0
    fetched = tq.get_client().get_meta(["x", "s"], 3, "p", task_name="t")
    batch = tq.get_client().get_data(fetched)
    assert [row.tolist() for row in batch["x"].unbind()] == [[1, 1]] * 3
    assert batch["s"] == ["u", "v", "w"]
    assert list(tq.kv_list("p")["p"]) == KEYS


def test_every_call_has_an_asynchronous_form_for_any_loop() -> None:
    async def round_trip(key: str) -> float:
        await tq.async_kv_put(key, "p", {"x": torch.tensor(1.0)}, {"n": 1})
        meta = await tq.async_kv_batch_put([key], "p", TensorDict({"y": torch.ones(1, 2)}, [1]))
        assert key in (await tq.async_kv_list("p"))["p"]
        batch = await tq.async_kv_batch_get(key, "p")
        assert batch["y"].is_nested
        again = await tq.async_kv_batch_get_by_meta(meta)
        # The blocking form on the loop's own thread.
        assert torch.equal(tq.kv_batch_get(key, "p")["x"], again["x"])
        await tq.async_kv_clear(key, "p")
        return float(batch["x"])

    for key in ("one", "two"):
        assert asyncio.run(round_trip(key)) == 1.0
    assert tq.kv_list("p") == {"p": {}}


def test_what_came_back_goes_back_in() -> None:
    jagged = torch.nested.nested_tensor([torch.ones(1), torch.ones(2), torch.ones(3)], layout=torch.jagged)
    given = TensorDict(
        {
            "half": torch.ones(3, 2, dtype=torch.bfloat16),
            "scalar": torch.arange(3),
            "jagged": jagged,
            "objects": np.array(["x", 1, None], dtype=object),
            "text": ["u", "v", "w"],
        },
        [3],
    ).detach()
    tq.kv_batch_put(KEYS, "p", given)
    read = tq.kv_batch_get(["c", "a"], "p")
    again = TensorDict({name: read.get(name) for name in read.keys()}, batch_size=read.batch_size)
    tq.kv_batch_put(["e", "f"], "p", again)
    second = tq.kv_batch_get(["e", "f"], "p")
    assert second.batch_size == (2,)
    assert second["scalar"].tolist() == [2, 0]
    assert [row.tolist() for row in second["jagged"].unbind()] == [[1.0] * 3, [1.0]]
    assert second["half"].dtype == torch.bfloat16
    assert [len(row) for row in second["half"].unbind()] == [2, 2]
    assert second["objects"] == [None, "x"]
    assert second["text"] == ["w", "u"]
