"""Copies are deep, and what refuses to be copied is shared instead of failing."""

from __future__ import annotations

import threading
from collections import namedtuple

import numpy as np
import torch

from transferqueue.metadata.copying import copy_info, copy_row_dicts, copy_value

Point = namedtuple("Point", "x y")


def test_containers_arrays_and_tensors_are_copied() -> None:
    value = {"l": [1, {"d": [2]}], "t": ([3],), "a": np.zeros(2), "x": torch.zeros(2), "s": {1}, "p": Point([1], 2)}
    copied = copy_value(value)
    copied["l"][1]["d"].append(0)
    copied["t"][0].append(0)
    copied["a"][0] = 1
    copied["x"][0] = 1
    copied["s"].add(2)
    copied["p"].x.append(2)
    assert value["l"] == [1, {"d": [2]}]
    assert value["t"] == ([3],)
    assert value["a"].tolist() == [0, 0]
    assert value["x"].tolist() == [0, 0]
    assert value["s"] == {1}
    assert value["p"] == Point([1], 2)
    assert type(copied["p"]) is Point


def test_what_cannot_be_copied_is_shared() -> None:
    lock = threading.Lock()
    loss = (torch.ones(1, requires_grad=True) * 2).sum()
    copied = copy_value([lock, {"loss": loss}])
    assert copied[0] is lock
    assert copied[1]["loss"] is loss


def test_rows_and_info() -> None:
    assert copy_info(None) == {}
    rows = [{"a": 1}, {"b": [1]}, {}]
    copied = copy_row_dicts(rows)
    copied[0]["a"] = 2
    copied[1]["b"].append(2)
    assert rows == [{"a": 1}, {"b": [1]}, {}]
