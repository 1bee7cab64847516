"""The calls by key."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from tests.support.threads import run_together
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)


def test_one_row_by_key(client: TransferQueueClient) -> None:
    meta = client.kv_put("k", "p", {"x": torch.tensor([1, 2]), "n": 3, "s": "text", "none": None}, {"score": 0.5})
    assert (meta.keys, meta.partition_id, meta.tags) == (["k"], "p", [{"score": 0.5}])
    assert meta.fields == ["n", "none", "s", "x"]
    assert meta.session == client.session
    found = client.kv_batch_get("k", "p")
    assert found.batch_size == torch.Size([1])
    assert found["x"].tolist() == [[1, 2]]
    assert list(found["s"]) == ["text"]
    assert list(found["n"]) == [3]
    assert list(found["none"]) == [None]


def test_arrays_of_a_dict_are_objects(client: TransferQueueClient) -> None:
    client.kv_put("k", "p", {"a": np.arange(3)})
    (found,) = client.kv_batch_get("k", "p")["a"].tolist()
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [0, 1, 2]


def test_rows_come_in_the_order_of_the_keys(client: TransferQueueClient) -> None:
    keys = [f"k{row}" for row in range(5)]
    data = TensorDict({"x": torch.arange(5), "s": NonTensorStack(*keys)}, [5])
    client.kv_batch_put(keys, "p", data)
    found = client.kv_batch_get(["k3", "k0", "k3"], "p")
    assert found["x"].tolist() == [3, 0, 3]
    assert list(found["s"]) == ["k3", "k0", "k3"]
    assert set(client.kv_batch_get(keys, "p", select_fields="x").keys()) == {"x"}


def test_puts_are_cumulative_and_tags_merge(client: TransferQueueClient) -> None:
    client.kv_batch_put(["a", "b"], "p", TensorDict({"x": torch.arange(2)}, [2]), [{"one": 1, "keep": "a"}, {}])
    second = client.kv_batch_put(["a"], "p", TensorDict({"y": torch.arange(1)}, [1]), [{"one": 2, "two": (1, 2)}])
    assert second.fields == ["x", "y"]
    assert second.tags == [{"one": 2, "keep": "a", "two": (1, 2)}]
    both = client.kv_batch_put(["a", "b"], "p", tags=[{}, {"three": 3}])
    assert both.fields == ["x"]
    assert both.tags == [{"one": 2, "keep": "a", "two": (1, 2)}, {"three": 3}]
    assert client.kv_list("p") == {"p": {"a": both.tags[0], "b": both.tags[1]}}


def test_a_put_again_overwrites_one_field_and_leaves_the_others(client: TransferQueueClient) -> None:
    client.kv_batch_put(["a", "b"], "p", TensorDict({"x": torch.arange(2), "y": torch.arange(2)}, [2]))
    client.kv_put("b", "p", {"x": torch.tensor(9)})
    found = client.kv_batch_get(["a", "b"], "p")
    assert found["x"].tolist() == [0, 9]
    assert found["y"].tolist() == [0, 1]


def test_the_list_is_in_the_order_of_creation(client: TransferQueueClient) -> None:
    for key in ("z", "a", "m"):
        client.kv_put(key, "p", tag={"key": key})
    client.kv_put("z", "p", tag={"again": True})
    client.kv_put("x", "q", {"x": 1})
    assert list(client.kv_list("p")["p"]) == ["z", "a", "m"]
    assert client.kv_list() == {
        "p": {"z": {"key": "z", "again": True}, "a": {"key": "a"}, "m": {"key": "m"}},
        "q": {"x": {}},
    }
    assert client.kv_list("unknown") == {}


def test_unknown_keys_are_named_or_skipped(client: TransferQueueClient) -> None:
    client.kv_batch_put(["a", "b"], "p", TensorDict({"x": torch.arange(2)}, [2]))
    with pytest.raises(tq.KeyNotFoundError) as caught:
        client.kv_batch_get(["a", "nope", "b", "neither"], "p")
    assert caught.value.keys == ("nope", "neither")
    assert client.kv_batch_get(["b", "nope"], "p", missing="skip")["x"].tolist() == [1]
    assert client.kv_batch_get(["nope"], "p", missing="skip").batch_size == torch.Size([0])
    assert client.kv_batch_get(["a"], "elsewhere", missing="skip").batch_size == torch.Size([0])
    with pytest.raises(tq.PartitionNotFoundError, match="'p'"):
        client.kv_batch_get(["a"], "elsewhere")


def test_without_a_choice_the_common_fields_are_read(client: TransferQueueClient) -> None:
    client.kv_put("a", "p", {"x": torch.tensor(1), "y": torch.tensor(2)})
    client.kv_put("b", "p", {"x": torch.tensor(3)})
    client.kv_put("c", "p", tag={"only": "tags"})
    assert set(client.kv_batch_get(["a", "b"], "p").keys()) == {"x"}
    with pytest.raises(tq.FieldNotReadyError) as caught:
        client.kv_batch_get(["a", "b"], "p", select_fields=["y"])
    assert caught.value.keys == ("b",)
    with pytest.raises(tq.FieldNotReadyError, match="'c'"):
        client.kv_batch_get(["a", "c"], "p")


def test_by_metadata(client: TransferQueueClient) -> None:
    meta = client.kv_batch_put(["a", "b"], "p", TensorDict({"x": torch.arange(2), "y": torch.arange(2)}, [2]))
    assert set(client.kv_batch_get_by_meta(meta).keys()) == {"x", "y"}
    meta.fields = ["y"]
    assert set(client.kv_batch_get_by_meta(meta).keys()) == {"y"}
    with pytest.raises(ValueError, match=r"select_fields.*not found"):
        client.kv_batch_get_by_meta(meta, select_fields=["x"])
    assert client.kv_batch_get_by_meta(tq.KVBatchMeta(partition_id="p")).batch_size == torch.Size([0])
    with pytest.raises(ValueError, match="partition"):
        client.kv_batch_get_by_meta(tq.KVBatchMeta(keys=["a"], tags=[{}]))


def test_clearing_is_idempotent_and_ignores_the_unknown(client: TransferQueueClient) -> None:
    client.kv_batch_put(["a", "b", "c"], "p", TensorDict({"x": torch.arange(3)}, [3]))
    client.kv_clear(["a", "nope", "a"], "p")
    client.kv_clear("a", "p")
    client.kv_clear(["b"], "unknown")
    assert list(client.kv_list("p")["p"]) == ["b", "c"]
    client.kv_clear(["b", "c"], "p")
    assert client.kv_list() == {"p": {}}
    client.clear_partition("p")
    client.clear_partition("p")
    assert client.kv_list() == {}


def test_a_key_that_was_cleared_starts_anew(client: TransferQueueClient) -> None:
    client.kv_put("k", "p", {"x": torch.tensor(1), "old": torch.tensor(1)}, {"tag": 1})
    before = client.kv_retrieve_meta("k", "p")
    client.kv_clear("k", "p")
    after = client.kv_put("k", "p", {"x": torch.tensor(2)})
    assert (after.fields, after.tags) == (["x"], [{}])
    assert client.kv_retrieve_meta("k", "p").global_indexes != before.global_indexes
    with pytest.raises(tq.StaleMetadataError):
        client.get_data(before)


def test_from_keys_to_indexes_and_back(client: TransferQueueClient) -> None:
    keys = [f"k{row}" for row in range(4)]
    client.kv_batch_put(keys, "p", TensorDict({"x": torch.arange(4)}, [4]), [{"row": row} for row in range(4)])
    meta = client.kv_retrieve_meta(keys, "p")
    meta.reorder([3, 1, 0, 2])
    assert client.kv_retrieve_keys(meta.global_indexes, "p") == ["k3", "k1", "k0", "k2"]
    assert client.kv_retrieve_keys(meta.chunk(2)[1].global_indexes, "p") == ["k0", "k2"]
    assert [row["row"] for row in meta.custom_meta] == [3, 1, 0, 2]
    assert client.get_data(meta)["x"].tolist() == [3, 1, 0, 2]
    without = client.put(TensorDict({"x": torch.arange(1)}, [1]), partition_id="p")
    assert client.kv_retrieve_keys(without.global_indexes[0], "p") == [None]
    assert client.kv_retrieve_keys([10**9], "p") == [None]
    with pytest.raises(tq.PartitionNotFoundError):
        client.kv_retrieve_keys([0], "unknown")


def test_metadata_of_keys_may_make_rows(client: TransferQueueClient) -> None:
    with pytest.raises(tq.PartitionNotFoundError):
        client.kv_retrieve_meta(["a"], "p")
    made = client.kv_retrieve_meta(["a", "b"], "p", create=True)
    assert (made.size, made.field_names, made.is_ready) == (2, [], False)
    assert client.kv_retrieve_meta(["a", "b"], "p", create=True).global_indexes == made.global_indexes
    with pytest.raises(tq.KeyNotFoundError, match="'c'"):
        client.kv_retrieve_meta(["a", "c"], "p")
    assert client.kv_retrieve_meta(["a", "c"], "p", missing="skip").size == 1
    client.put(TensorDict({"x": torch.arange(2)}, [2]), metadata=made)
    assert client.kv_batch_get(["b", "a"], "p")["x"].tolist() == [1, 0]


def test_a_get_may_wait_for_keys_that_do_not_exist_yet(client: TransferQueueClient) -> None:
    with pytest.raises(tq.TransferTimeoutError, match="'k'"):
        client.kv_batch_get("k", "p", timeout=0.2)
    later = threading.Timer(0.2, lambda: client.kv_put("k", "p", {"x": torch.tensor(5)}))
    later.start()
    assert client.kv_batch_get("k", "p", ["x"], timeout=60)["x"].tolist() == [5]
    later.join()


@pytest.mark.parametrize("key", ["x" * 10_000, "nul\0inside", "é" * 300, "\n", " ", "a/b", "0"])
def test_keys_of_any_length_and_content(client: TransferQueueClient, key: str) -> None:
    other = key + "."
    client.kv_put(key, "p", {"x": torch.tensor(1)}, {"long": "v" * 10_000})
    client.kv_put(other, "p", {"x": torch.tensor(2)})
    assert client.kv_batch_get([other, key], "p")["x"].tolist() == [2, 1]
    assert set(client.kv_list("p")["p"]) == {key, other}
    client.kv_clear(key, "p")
    assert list(client.kv_list("p")["p"]) == [other]


def test_tags_may_be_large_and_many(client: TransferQueueClient) -> None:
    tags = [{f"tag {number}": "x" * 1000 for number in range(30)} for _ in range(40)]
    keys = [f"k{row}" for row in range(40)]
    client.kv_batch_put(keys, "p", tags=tags)
    assert list(client.kv_list("p")["p"].values()) == tags


def test_thousands_of_keys(client: TransferQueueClient) -> None:
    keys = [f"key number {row}" for row in range(3000)]
    client.kv_batch_put(keys, "p", TensorDict({"x": torch.arange(3000)}, [3000]), [{"row": r} for r in range(3000)])
    assert client.kv_batch_get(keys[::-1], "p")["x"].tolist() == list(range(2999, -1, -1))
    assert list(client.kv_list("p")["p"]) == keys
    client.kv_clear(keys[::2], "p")
    assert list(client.kv_list("p")["p"]) == keys[1::2]


@pytest.mark.parametrize("timeout", [None, 0.0])
def test_keys_cleared_under_a_get_that_skips_are_left_out(
    client: TransferQueueClient,
    client_at_home: TransferQueueClient,
    monkeypatch: pytest.MonkeyPatch,
    timeout: float | None,
) -> None:
    client.kv_batch_put(["a", "b"], "p", TensorDict({"x": torch.arange(2)}, [2]))
    victims = ["a"]
    resolve = client_at_home._resolve_keys

    def clear_first(*args: Any) -> Any:
        while victims:
            run_together(lambda: client.kv_clear(victims.pop(), "p"))
        return resolve(*args)

    monkeypatch.setattr(client_at_home, "_resolve_keys", clear_first)
    assert client.kv_batch_get(["a", "b"], "p", missing="skip", timeout=timeout)["x"].tolist() == [1]
    victims.append("b")
    assert client.kv_batch_get(["a", "b"], "p", missing="skip", timeout=timeout).batch_size == torch.Size([0])


def test_a_key_cleared_under_a_look_up_is_missing(
    client: TransferQueueClient, client_at_home: TransferQueueClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.kv_batch_put(["a", "b"], "p", TensorDict({"x": torch.arange(2)}, [2]))
    victims = ["a"]
    describe = client_at_home._meta_of_rows

    def clear_first(*args: Any) -> tq.BatchMeta:
        while victims:
            run_together(lambda: client.kv_clear(victims.pop(), "p"))
        return describe(*args)

    monkeypatch.setattr(client_at_home, "_meta_of_rows", clear_first)
    assert client.kv_retrieve_meta(["a", "b"], "p", missing="skip").size == 1
    victims.append("b")
    with pytest.raises(tq.KeyNotFoundError, match="'b'"):
        client.kv_retrieve_meta(["b"], "p")
