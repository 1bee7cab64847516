"""Rows of the models: every value follows from (field, row number, version), so a byte of another row, field or version
shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NonTensorStack, TensorDict

FIELDS = ["x", "y", "r", "s"]
WIDTH = 4096  # two rows of x in one piece are viewed, one row is copied
# Number of a row, and the version of each of its fields.
Expected = tuple[int, dict[str, int]]


def value(name: str, number: int, version: int) -> Any:
    seed = number * 1009 + version
    if name == "x":
        return torch.arange(WIDTH) + seed
    if name == "y":
        return torch.tensor([seed, -seed])
    if name == "r":
        return torch.full((seed % 5,), float(seed))
    return f"{number}:{version}"


def column(name: str, numbers: Sequence[int], version: int) -> Any:
    values = [value(name, number, version) for number in numbers]
    if name == "r":
        return torch.nested.nested_tensor(values, layout=torch.jagged)
    return NonTensorStack(*values) if name == "s" else torch.stack(values)


def batch_of(names: Sequence[str], numbers: Sequence[int], version: int) -> TensorDict:
    return TensorDict({name: column(name, numbers, version) for name in names}, [len(numbers)])


def compare(batch: Any, expected: Sequence[Expected]) -> None:
    """Fails unless every row of every field is what its number and version say."""
    assert batch.batch_size == torch.Size([len(expected)])
    for name in batch.keys():
        got = batch.get(name)
        rows = got.unbind(0) if isinstance(got, torch.Tensor) else got.tolist()
        for found, (number, versions) in zip(rows, expected, strict=True):
            wanted = value(name, number, versions[name])
            same = bool(found == wanted) if name == "s" else torch.equal(found, wanted)
            assert same, (name, number, versions[name])
