"""The batches that every system is measured with. Needs only numpy, torch and tensordict (any peer's environment)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import NonTensorStack, TensorDict

SEQUENCE = 4096
RESPONSE = 2048
PROMPT_MIN, PROMPT_MAX = 100, 2048


def workload_w(rows: int = 512, seed: int = 0, *, strings: bool = True) -> TensorDict:
    """W: what a PPO step reads. 512 rows are 67 MB (the jagged prompts of seed 0 included).

    input_ids, attention_mask, position_ids int64 [rows, 4096]; responses int64 and old_log_probs float32 [rows, 2048];
    jagged prompts int64 (100..2048 tokens a row); with `strings` one string uid a row.
    """
    numbers = torch.Generator().manual_seed(seed)
    lengths = torch.randint(PROMPT_MIN, PROMPT_MAX + 1, (rows,), generator=numbers)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    tokens = torch.randint(0, 150_000, (int(offsets[-1]),), generator=numbers)
    batch = TensorDict(
        {
            "input_ids": torch.randint(0, 150_000, (rows, SEQUENCE), generator=numbers),
            "attention_mask": torch.randint(0, 2, (rows, SEQUENCE), generator=numbers),
            "position_ids": torch.arange(SEQUENCE).repeat(rows, 1),
            "responses": torch.randint(0, 150_000, (rows, RESPONSE), generator=numbers),
            "old_log_probs": torch.randn(rows, RESPONSE, generator=numbers),
            "prompts": torch.nested.nested_tensor_from_jagged(tokens, offsets),
        },
        batch_size=[rows],
    )
    if strings:
        batch.set("uid", NonTensorStack(*[f"uid-{seed}-{row:06d}" for row in range(rows)]))
    return batch


def small_batch(seed: int = 0) -> TensorDict:
    """8 rows x 16 floats: the batch whose cost is all overhead."""
    return TensorDict({"x": torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))}, batch_size=[8])


def payload_nbytes(batch: TensorDict) -> int:
    """Bytes of tensor data and of encoded strings: what a memcpy of the batch would move."""
    total = 0
    for name in batch.keys():
        value = batch.get(name)
        if isinstance(value, torch.Tensor):
            buffer = value.values() if value.is_nested else value
            total += buffer.numel() * buffer.element_size()
        else:
            total += sum(len(str(text).encode()) for text in batch[name])
    return total


def buffers_of(batch: Any) -> list[torch.Tensor]:
    """The bytes of every tensor of a TensorDict or dict, flat uint8 and without a copy; other columns are left out."""
    found = []
    for name in batch.keys():
        value = batch[name] if isinstance(batch, dict) else batch.get(name)
        if isinstance(value, torch.Tensor):
            found.append((value.values() if value.is_nested else value).reshape(-1).view(torch.uint8))
    return found


def touch_pages(batch: Any) -> int:
    """Reads one byte of each page of every tensor: page faults and little else."""
    return sum(int(flat[::4096].sum(dtype=torch.int64)) for flat in buffers_of(batch))


def read_all(batch: Any) -> int:
    """Reads every byte of every tensor once, in 8-byte words: what a worker does at the least."""
    return sum(int(flat[: flat.numel() // 8 * 8].view(torch.int64).sum()) for flat in buffers_of(batch))


def rows_of(column: Any) -> list[Any]:
    """One comparable value per row, whatever form a system returns a column in."""
    if isinstance(column, torch.Tensor):
        parts = column.unbind() if column.is_nested else column
        return [np.asarray(part) for part in parts]
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    return [np.asarray(value) if isinstance(value, torch.Tensor) else str(value) for value in values]


def assert_equal_batches(got: TensorDict, expected: TensorDict) -> None:
    """Every field and every row; raises ValueError naming the first that differs."""
    if sorted(map(str, got.keys())) != sorted(map(str, expected.keys())):
        raise ValueError(f"fields differ: {sorted(got.keys())} against {sorted(expected.keys())}")
    for name in expected.keys():
        ours, theirs = rows_of(got[name]), rows_of(expected[name])
        if len(ours) != len(theirs):
            raise ValueError(f"field {name}: {len(ours)} rows against {len(theirs)}")
        for row, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            same = left == right if isinstance(right, str) else np.array_equal(left, right)
            if not same:
                raise ValueError(f"field {name} differs at row {row}")
