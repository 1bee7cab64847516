"""Merging batch-wide values: equal once, differing collected, reduced or refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from transferqueue.metadata.extra_info import merge_extra_info, values_equal


@pytest.mark.parametrize(
    ("rule", "values", "expected"),
    [
        ("mean", [1, 2, 6], 3.0),
        ("sum", [2, 2, 2], 6),
        ("max", [1.5, 3, 2], 3),
        ("min", [1.5, 3, 2], 1.5),
        ("first", ["a", "b"], "a"),
        ("last", ["a", "b"], "b"),
        ("list", ["a", "a"], ["a", "a"]),
        ("list", ["a"], ["a"]),
        (lambda values: "-".join(values), ["a", "b"], "a-b"),
        ("mean", [np.float32(1), 2], 1.5),
        ("sum", [True, True], 2),
    ],
)
def test_rules(rule: Any, values: list[Any], expected: Any) -> None:
    assert merge_extra_info([{"k": value} for value in values], reduce={"k": rule}) == {"k": expected}


def test_rules_on_arrays_and_tensors_are_elementwise() -> None:
    arrays = [{"k": np.array([1, 4])}, {"k": np.array([3, 0])}]
    assert merge_extra_info(arrays, reduce={"k": "mean"})["k"].tolist() == [2.0, 2.0]
    assert merge_extra_info(arrays, reduce={"k": "max"})["k"].tolist() == [3, 4]
    tensors = [{"k": torch.tensor([1, 4])}, {"k": torch.tensor([2, 0])}]
    assert merge_extra_info(tensors, reduce={"k": "mean"})["k"].tolist() == [1.5, 2.0]
    assert merge_extra_info(tensors, reduce={"k": "min"})["k"].tolist() == [1, 0]
    assert merge_extra_info([{"k": torch.tensor(1.0)}, {"k": 3.0}], reduce={"k": "sum"})["k"].item() == 4.0


@pytest.mark.parametrize("values", [["a", "b"], [{}, {}], [None, 1], [np.zeros(2), np.zeros(3)]], ids=repr)
def test_a_rule_that_does_not_fit_names_its_key(values: list[Any]) -> None:
    with pytest.raises(TypeError, match=r"extra_info key 'k' of type .* has no mean"):
        merge_extra_info([{"k": value} for value in values], reduce={"k": "mean"})


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown reduction 'median' for 'k'; there are mean"):
        merge_extra_info([{"k": 1}], reduce={"k": "median"})
    with pytest.raises(ValueError, match='must be "collect" or "raise"'):
        merge_extra_info([], on_conflict="drop")  # type: ignore[arg-type]


def test_the_result_shares_nothing_with_the_pieces() -> None:
    pieces: list[dict[str, Any]] = [{"same": [1], "differ": [1]}, {"same": [1], "differ": [2]}]
    merged = merge_extra_info(pieces, reduce={})
    merged["same"].append(0)
    merged["differ"][1].append(0)
    assert pieces == [{"same": [1], "differ": [1]}, {"same": [1], "differ": [2]}]


class Strict:
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("cannot compare")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1, 1, True),
        (1, 1.0, False),
        (1, True, False),
        (float("nan"), float("nan"), True),
        ({"a": [1, (2.0, float("nan"))]}, {"a": [1, (2.0, float("nan"))]}, True),
        ({"a": 1}, {"b": 1}, False),
        ([1], [1, 2], False),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan]), True),
        (np.array([1, 2]), np.array([1.0, 2.0]), False),
        (np.array(["a", None], dtype=object), np.array(["a", None], dtype=object), True),
        (torch.tensor([1, 2]), torch.tensor([1, 2]), True),
        (torch.tensor([1.0]), torch.tensor([1]), False),
        (torch.zeros(2), torch.zeros(3), False),
        (torch.ones(2, dtype=torch.float8_e4m3fn), torch.ones(2, dtype=torch.float8_e4m3fn), True),
        (torch.tensor([1j]), torch.tensor([2j]), False),
        (Strict(), Strict(), False),
    ],
    ids=str,
)
def test_values_equal(a: Any, b: Any, expected: bool) -> None:
    assert values_equal(a, b) is expected
