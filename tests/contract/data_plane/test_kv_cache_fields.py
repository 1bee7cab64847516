"""Caches of attention keys and values as fields: layers x 2 x heads x tokens x dim, tokens ragged, under string keys.

The KV in the names of the verbs means key-value as in a dictionary; an inference engine's KV cache is one more kind of
value that may stand under a key.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)

LAYERS, HEADS, DIM = 3, 4, 64
TOKENS = {"seq-a": 5, "seq-b": 40, "seq-c": 17, "seq-d": 64}
DTYPES = [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


def caches(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """One tensor [layers, 2, heads, tokens, dim] a sequence; every byte pattern of the dtype may occur in it."""
    generator = torch.Generator().manual_seed(7)
    made = {}
    for key, tokens in TOKENS.items():
        shape = (LAYERS, 2, HEADS, tokens, DIM * dtype.itemsize)
        made[key] = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator).view(dtype)
    return made


def jagged(rows: list[torch.Tensor]) -> torch.Tensor:
    """[rows, layers, 2, heads, ragged tokens, dim]; torch builds jagged tensors with the ragged dimension first."""
    return torch.nested.nested_tensor([row.transpose(0, 3) for row in rows], layout=torch.jagged).transpose(1, 4)


def strided(rows: list[torch.Tensor]) -> Any:
    """The same with each row contiguous, as an engine allocates it. torch has this layout without fp8."""
    return torch.nested.as_nested_tensor(rows, layout=torch.strided)


def same_bytes(found: torch.Tensor, expected: torch.Tensor) -> bool:
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    return torch.equal(found.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))


def store(client: TransferQueueClient, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    rows = caches(dtype)
    fields = TensorDict({"kv_cache": jagged(list(rows.values())), "tokens": torch.tensor(list(TOKENS.values()))}, [4])
    client.kv_batch_put(list(rows), "caches", fields, tags=[{"model": "policy"}] * 4)
    return rows


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_subset_of_keys_is_read_as_views(client: TransferQueueClient, dtype: torch.dtype) -> None:
    rows = store(client, dtype)
    wanted = ["seq-b", "seq-c"]
    found, report = client.get_data_with_report(client.kv_retrieve_meta(wanted, "caches"), fields=["kv_cache"])
    nbytes = sum(rows[key].nbytes for key in wanted)
    assert (report.rows, report.bytes_viewed, report.bytes_copied) == (2, nbytes, 0)
    column = found["kv_cache"]
    assert column.layout is torch.jagged
    assert [tuple(row.shape) for row in column.unbind()] == [(LAYERS, 2, HEADS, TOKENS[key], DIM) for key in wanted]
    assert all(same_bytes(row, rows[key]) for row, key in zip(column.unbind(), wanted, strict=True))
    assert column.values().untyped_storage().nbytes() == nbytes, "a view of those rows and not of the block"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_sequence_put_alone_and_any_order_of_keys(client: TransferQueueClient, dtype: torch.dtype) -> None:
    rows = caches(dtype)
    for key, row in rows.items():
        client.kv_batch_put([key], "caches", TensorDict({"kv_cache": row.unsqueeze(0)}, [1]))
    found, report = client.get_data_with_report(client.kv_retrieve_meta(["seq-d"], "caches"))
    assert (report.bytes_viewed, report.bytes_copied) == (rows["seq-d"].nbytes, 0)
    assert same_bytes(found["kv_cache"][0], rows["seq-d"])
    order = ["seq-d", "seq-a", "seq-c"]
    scattered = client.kv_batch_get(order, "caches")["kv_cache"].unbind()
    assert all(same_bytes(row, rows[key]) for row, key in zip(scattered, order, strict=True))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_strided_layout_keeps_each_row_as_the_engine_laid_it_out(client: TransferQueueClient) -> None:
    rows = caches(torch.bfloat16)
    client.kv_batch_put(list(rows), "caches", TensorDict({"kv_cache": strided(list(rows.values()))}, [4]))
    wanted = ["seq-c", "seq-d"]
    found, report = client.get_data_with_report(client.kv_retrieve_meta(wanted, "caches"))
    assert (report.bytes_viewed, report.bytes_copied) == (sum(rows[key].nbytes for key in wanted), 0)
    for row, key in zip(found["kv_cache"].unbind(), wanted, strict=True):
        assert row.is_contiguous()
        assert same_bytes(row, rows[key])


def test_what_a_reader_writes_into_its_view_is_its_own(client: TransferQueueClient) -> None:
    rows = store(client, torch.bfloat16)
    first = client.kv_batch_get(["seq-b"], "caches", ["kv_cache"])["kv_cache"]
    first.values().zero_()
    again = client.kv_batch_get(["seq-b"], "caches", ["kv_cache"])["kv_cache"]
    assert same_bytes(again.unbind()[0], rows["seq-b"])
    client.kv_clear(["seq-b"], "caches")
    assert same_bytes(again.unbind()[0], rows["seq-b"]), "a view held outlives the row"
