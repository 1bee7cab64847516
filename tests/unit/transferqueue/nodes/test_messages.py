"""Values come back as they were; what no message carries is refused by name; nothing damaged gets through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from transferqueue import errors
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.nodes import envelopes, messages
from transferqueue.nodes.errors import GoneError


def there_and_back(value: Any) -> Any:
    return messages.decode(messages.encode(value))


@messages.carried
@dataclass(frozen=True)
class Facts:
    name: str
    sizes: tuple[int, ...]


@messages.carried
@dataclass
class Parts:
    rows: list[int]
    names: list[str] = field(default_factory=list)
    weights: list[float] = field(default_factory=lambda: [1.0])


def test_what_is_empty_unless_said_is_not_sent() -> None:
    for value in (Parts([]), Parts([1], ["a"]), Parts([2], [], []), Parts([3], weights=[2.0])):
        assert messages.decode(messages.encode(value)) == value
    assert b"names" not in messages.encode(Parts([1]))
    assert all(name in messages.encode(Parts([], ["a"], [])) for name in (b"rows", b"names", b"weights"))


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1, -1, 2**63, -(2**80), 2**200, True, 1.5, "ä", b"\0"],
        {"a": (1, [2, (3, {})]), "b": {"c": {1: "x", (2, "y"): None}}},
        {1, "a", (2, 3)},
        frozenset({1}),
        np.float32(1.25),
        Facts("x", (1, 2)),
        [Facts("y", ())],
        ["a"] * 1000,
    ],
)
def test_values_come_back_with_their_types(value: Any) -> None:
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(5, 1 << 20),
        np.array([3, -1, 1 << 62]),
        np.zeros(0, np.int64),
        np.ones((2, 3)),
        np.zeros((0, 4), np.int8),
        np.array(True),
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.arange(10)[::2],
    ],
)
def test_arrays_come_back(array: np.ndarray[Any, Any]) -> None:
    back = there_and_back({"x": [array]})["x"][0]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)
    assert back.flags.writeable


def test_a_run_of_indexes_costs_its_ends() -> None:
    assert len(messages.encode(np.arange(1 << 50, (1 << 50) + (1 << 20)))) < 60


@pytest.mark.parametrize(
    "tensor", [torch.ones(2, 3, dtype=torch.bfloat16), torch.arange(3), torch.tensor(1.5), torch.zeros(0, 2)]
)
def test_tensors_come_back(tensor: torch.Tensor) -> None:
    back = there_and_back((tensor,))[0]
    assert back.dtype == tensor.dtype
    assert torch.equal(back, tensor)


def test_metadata_comes_back_whole() -> None:
    schema = {"x": {"dtype": "float32", "shape": (4,)}}
    meta = BatchMeta(np.arange(8), "train", schema, np.ones(8), {"t": torch.ones(2), "big": 2**70}, session="s")
    keyed = KVBatchMeta(keys=["a", "b"], tags=[{"n": 1}, {"m": (1, 2)}], partition_id="p", fields=["x"])
    back, back_keyed = there_and_back([meta, keyed])
    assert back == meta
    assert torch.equal(back.extra_info["t"], torch.ones(2))
    assert (back_keyed.keys, back_keyed.tags, back_keyed.fields) == (keyed.keys, keyed.tags, ["x"])


class Custom:
    pass


@pytest.mark.parametrize("value", [Custom(), [Custom()], {"x": (len,)}, np.array(["a"], dtype=object), np.array(["a"])])
def test_what_needs_pickle_is_refused_by_its_sender(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot go to another node"):
        messages.encode(value)


def test_depth_is_bounded_on_both_sides() -> None:
    deep: Any = ()
    for _ in range(messages.MAX_DEPTH + 2):
        deep = (deep,)
    with pytest.raises(ValueError, match="nested deeper"):
        messages.encode(deep)
    forged = messages._pack([])
    for _ in range(100):
        forged = messages._pack(messages._ext(messages._TUPLE, b"\x91" + forged))
    with pytest.raises(errors.CorruptSegmentError):
        messages.decode(messages._VERSION + forged)


@pytest.mark.parametrize(
    "forged",
    [
        b"",
        messages._VERSION,
        messages._VERSION + b"\xc1",
        messages._VERSION + messages._pack(messages._ext(99, b"")),
        messages._VERSION + messages._pack(messages._ext(messages._INT64, messages._pack([1 << 40, b"R\0"]))),
        messages._VERSION + messages._pack(messages._ext(messages._ARRAY, messages._pack(["O", [1], b"12345678"]))),
        messages._VERSION + messages._pack(messages._ext(messages._TENSOR, messages._pack(["int64", [1 << 40], b""]))),
        messages._VERSION + messages._pack(messages._ext(messages._SET, messages._pack([[]]))),
        messages._VERSION + messages._pack(messages._ext(messages._DATACLASS, messages._pack(["Popen", {}]))),
        messages._VERSION + messages._pack(messages._ext(messages._DATACLASS, messages._pack(["Facts", {"x": 1}]))),
    ],
)
def test_forged_messages_are_refused(forged: bytes) -> None:
    with pytest.raises(errors.CorruptSegmentError):
        messages.decode(forged)


def test_a_message_cannot_expand_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_MAX_EXPANDED", 2000)
    run = np.arange(1000)
    assert len(there_and_back([run, run])) == 2
    with pytest.raises(errors.CorruptSegmentError, match="longer than messages hold"):
        there_and_back([run, run, run])


def test_another_version_is_named() -> None:
    with pytest.raises(errors.LayoutMismatchError, match="version 9"):
        messages.decode(b"\x09" + messages.encode(1)[1:])


@pytest.mark.parametrize(
    "error",
    [
        errors.FieldNotReadyError("not there", fields=("a",), rows=(1, 2), partition_id="p"),
        errors.LimitTimeoutError("full", timeout_s=1.5, cap=3),
        errors.TransferTimeoutError("late", missing={"a": [1]}),
        GoneError("gone", rows=(5,)),
        ValueError("bad mode"),
        KeyError("k"),
        NotImplementedError("no"),
    ],
)
def test_errors_come_back_as_themselves(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        envelopes.read_answer(envelopes.answer_of_error(error))
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    assert getattr(caught.value, "details", None) == getattr(error, "details", None)


def test_other_errors_come_back_with_their_text_and_class() -> None:
    class OddError(errors.StaleMetadataError):
        pass

    with pytest.raises(errors.TransferQueueError, match="ZeroDivisionError: by nothing"):
        envelopes.read_answer(envelopes.answer_of_error(ZeroDivisionError("by nothing")))
    with pytest.raises(errors.StaleMetadataError) as caught:
        envelopes.read_answer(envelopes.answer_of_error(OddError("odd", rows=(1,), thing=Custom())))
    assert caught.value.rows == (1,)
    assert "Custom" in caught.value.thing  # type: ignore[attr-defined]


def test_a_request_is_checked() -> None:
    request = envelopes.Request("m", {"x": (1,)}, bytes(16), 2.5, "me")
    assert envelopes.Request.decode(request.encode()) == request
    for odd in ([], ["m"], ["m", {}, b"short", None, "me", 0.5], ["m", {1: 2}, bytes(16), None, "me", 0.5]):
        with pytest.raises(errors.CorruptSegmentError):
            envelopes.Request.decode(messages.encode(odd))
        with pytest.raises(errors.CorruptSegmentError):
            envelopes.read_answer(messages.encode(odd))
