"""The batches, and the passes over them."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from transferqueue.microbench.workload import (
    assert_equal_batches,
    buffers_of,
    payload_nbytes,
    read_all,
    small_batch,
    touch_pages,
    workload_w,
)


def test_w_is_what_the_design_says() -> None:
    batch = workload_w(4)
    assert {name: batch.get(name).dtype for name in batch.keys() if name != "uid"} == {
        "input_ids": torch.int64,
        "attention_mask": torch.int64,
        "position_ids": torch.int64,
        "responses": torch.int64,
        "old_log_probs": torch.float32,
        "prompts": torch.int64,
    }
    lengths = batch["prompts"].offsets().diff()
    dense = 4 * (3 * 4096 * 8 + 2048 * 8 + 2048 * 4)
    assert payload_nbytes(batch) == dense + int(lengths.sum()) * 8 + 4 * len("uid-0-000000")
    assert payload_nbytes(small_batch()) == 8 * 16 * 4


def test_passes_see_every_tensor_and_no_copy() -> None:
    batch = TensorDict({"x": torch.ones(2, 4096, dtype=torch.int64), "y": torch.ones(2, 1024)}, [2])
    assert sum(flat.numel() for flat in buffers_of(batch)) == 2 * 4096 * 8 + 2 * 1024 * 4
    assert buffers_of(batch)[0].data_ptr() == batch["x"].data_ptr()
    # One byte a page: the lowest byte of each 1 in x, of each 1.0 (0x3f800000) in y.
    assert touch_pages(batch) == 16
    assert read_all({"x": batch["x"]}) == 2 * 4096
    assert read_all({"y": torch.zeros(2, 1024), "z": torch.ones(3, dtype=torch.int64)}) == 3
    # Peers return dicts; jagged columns count with their values, strings not at all.
    assert touch_pages(dict(batch.items())) == 16
    assert len(buffers_of(workload_w(2))) == 6


def test_a_difference_is_found_and_named() -> None:
    batch = workload_w(3)
    assert_equal_batches(workload_w(3), batch)
    changed = workload_w(3)
    changed["responses"][1, 5] += 1
    with pytest.raises(ValueError, match="field responses differs at row 1"):
        assert_equal_batches(changed, batch)
    with pytest.raises(ValueError, match="fields differ"):
        assert_equal_batches(workload_w(3, strings=False), batch)
