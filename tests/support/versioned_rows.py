"""Rows whose every byte follows from (row number, version), so that a torn, stale or foreign read shows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import NonTensorStack, TensorDict, TensorDictBase

WIDTH = 2048
# A field of eight rows is 128 KiB and hence viewed; "s", "n" and the jagged one are copied.
FIELDS = ("n", "r", "s", "x")


def rows(numbers: Sequence[int], version: int, width: int = WIDTH) -> TensorDict:
    """x int64 [rows, width], r jagged int64 of 0 to 6 numbers a row, s str, n int64 [rows, 2]: number and version."""
    ragged = [torch.full(((number + version) % 7,), number * 1000 + version) for number in numbers]
    return TensorDict(
        {
            "x": _x(numbers, version, width),
            "r": torch.nested.nested_tensor(ragged, layout=torch.jagged),
            "s": NonTensorStack(*[f"{number}@{version}" for number in numbers]),
            "n": torch.tensor([[number, version] for number in numbers]),
        },
        batch_size=[len(numbers)],
    )


def _x(numbers: Sequence[int], version: int, width: int) -> torch.Tensor:
    first = torch.tensor([number * 1_000_003 + version * 7_919_777 for number in numbers])
    return first.unsqueeze(1) + torch.arange(width)


def versions_of(batch: TensorDictBase, width: int = WIDTH) -> list[tuple[int, int]]:
    """(number, version) of each row; fails unless every byte of all four fields belongs to exactly that."""
    found = [(number, version) for number, version in batch["n"].tolist()]
    ragged = [row.tolist() for row in batch["r"].unbind()]
    strings = list(batch["s"])
    assert len(ragged) == len(strings) == len(found)
    for (number, version), row, text in zip(found, ragged, strings, strict=True):
        assert text == f"{number}@{version}", (number, version, text)
        assert row == [number * 1000 + version] * ((number + version) % 7), (number, version, row)
    for at, (number, version) in enumerate(found):
        expected = _x([number], version, width)[0]
        assert torch.equal(batch["x"][at], expected), (number, version, batch["x"][at][:4], expected[:4])
    return found
