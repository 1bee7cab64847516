"""Rows for tests between nodes."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NonTensorStack, TensorDict

from tests.nodes.one_process import OneProcess
from transferqueue.nodes.names import PAYLOAD

MIB = 1 << 20


def batch(rows: int = 4, start: int = 0) -> TensorDict:
    lengths = [1 + row % 3 for row in range(rows)]
    return TensorDict(
        {
            "x": torch.arange(start, start + rows * 3).reshape(rows, 3),
            "j": torch.nested.nested_tensor(
                [torch.full((n,), float(start + row)) for row, n in enumerate(lengths)], layout=torch.jagged
            ),
            "s": NonTensorStack(*[f"row {start + row}" for row in range(rows)]),
        },
        batch_size=[rows],
    )


def same(left: TensorDict, right: TensorDict) -> None:
    assert sorted(map(str, left.keys())) == sorted(map(str, right.keys()))
    for name in left.keys():
        a, b = left.get(name), right.get(name)
        if isinstance(a, torch.Tensor) and a.is_nested:
            assert a.layout == b.layout
            assert all(torch.equal(x, y) for x, y in zip(a.unbind(), b.unbind(), strict=True))
        elif isinstance(a, torch.Tensor):
            assert torch.equal(a, b)
        else:
            assert a.tolist() == b.tolist()


def payload_rows(cluster: OneProcess, ordinal: int) -> int:
    return len(cluster.at[ordinal].store.production(PAYLOAD, [])[1])


def mebibytes(count: int) -> TensorDict:
    return TensorDict({"x": torch.zeros(1, count * MIB, dtype=torch.uint8)}, [1])


def fill(client: Any, partition: str) -> Any:
    """Takes all room that the node has left."""
    rest = client.stats().free_bytes
    data = TensorDict({"x": torch.zeros(1, rest - rest % 4096, dtype=torch.uint8)}, [1])
    return client.put(data, partition_id=partition, timeout=5)
