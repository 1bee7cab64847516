"""Everything that shares a view's memory holds its lease, and nothing else does."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from tests.race import deeds
from transferqueue import BatchMeta, TransferQueueClient

pytestmark = pytest.mark.timeout(120)
ROWS, WIDTH = 8, 20_000


def stored() -> TensorDict:
    ragged = [torch.arange(9_000 + 100 * row) + row for row in range(ROWS)]
    return TensorDict(
        {
            "x": torch.arange(ROWS * WIDTH, dtype=torch.float64).reshape(ROWS, WIDTH),
            "r": torch.nested.nested_tensor(ragged, layout=torch.jagged),
        },
        [ROWS],
    )


@pytest.fixture
def meta(client: TransferQueueClient) -> BatchMeta:
    return client.put(stored(), partition_id="p")


def views(client: TransferQueueClient) -> int:
    gc.collect()
    return int(sum(client_lease["views"] for client_lease in client._store.leases()))


WEIGHT = torch.ones(ROWS, WIDTH, dtype=torch.float64, requires_grad=True)


class Model(torch.nn.Module):
    def __init__(self, view: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("buffer", view)


ALIASES: dict[str, Callable[[torch.Tensor], Any]] = {
    "numpy": lambda x: x.numpy(),
    "a row of numpy": lambda x: x.numpy()[3],
    "numpy without a base": lambda x: np.asarray(memoryview(x.numpy())),
    "memoryview": lambda x: memoryview(x.numpy()),
    "from_numpy": lambda x: torch.from_numpy(x.numpy()),
    "from_numpy of every second": lambda x: torch.from_numpy(x.numpy()[::2, ::3]),
    "numpy by DLPack": lambda x: np.from_dlpack(x),
    "torch by DLPack": lambda x: torch.from_dlpack(x.numpy()),
    "a capsule": lambda x: torch.utils.dlpack.to_dlpack(x),
    "frombuffer": lambda x: torch.frombuffer(x.numpy(), dtype=torch.uint8),
    "a slice": lambda x: x[2:4, 5:9],
    "one number": lambda x: x[7, -1],
    "rows": lambda x: x.unbind(),
    "a transposed one": lambda x: x.t(),
    "another dtype": lambda x: x.view(torch.int64),
    "detached": lambda x: x.detach(),
    "expanded": lambda x: x[:1].expand(5, WIDTH),
    "as_strided": lambda x: x.as_strided((3,), (7,)),
    "the storage": lambda x: x.untyped_storage(),
    "a tensor of the storage": lambda x: torch.empty(0, dtype=x.dtype).set_(x.untyped_storage()),
    "a parameter": lambda x: torch.nn.Parameter(x),
    "a buffer of a module": lambda x: Model(x),
    "a state dict": lambda x: Model(x).state_dict(),
    "a graph": lambda x: (WEIGHT * x).sum(),
    "a graph behind other steps": lambda x: ((WEIGHT * x[:, :100].repeat(1, WIDTH // 100)) * x).mean().exp(),
    "a gradient function": lambda x: (WEIGHT * x).grad_fn,
    "a hook": lambda x: (hooked := WEIGHT * 2, hooked.register_hook(lambda grad: grad * x)),
    "a tensor dict": lambda x: TensorDict({"x": x}, [ROWS])[2:],
    "a function": lambda x: lambda: x,
    "an iterator": lambda x: iter(x),
    "a subclass": lambda x: x.as_subclass(type("Mine", (torch.Tensor,), {})),
}
COPIES: dict[str, Callable[[torch.Tensor], Any]] = {
    "torch.save": lambda x: (torch.save({"x": x, "row": x[1]}, file := io.BytesIO()), file)[1],
    "pickle": lambda x: pickle.dumps(x),
    "deepcopy": lambda x: copy.deepcopy(x),
    "clone": lambda x: x.clone(),
    "a copy of numpy": lambda x: x.numpy().copy(),
    "a list": lambda x: x[0].tolist(),
    "a sum": lambda x: x.sum(),
    "a graph of a copy": lambda x: (WEIGHT * x.clone()).sum(),
    "a graph that was run": lambda x: (WEIGHT * x).sum().backward(),
    "an address": lambda x: x.data_ptr(),
}


@pytest.mark.parametrize("mode", ["cow", "shared"])
@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_holds_the_lease_as_long_as_it_lives(
    client: TransferQueueClient, meta: BatchMeta, alias: str, mode: str
) -> None:
    view = client.get_data(meta, fields=["x"], mode=mode)["x"]
    assert views(client) == 1
    held = ALIASES[alias](view)
    del view
    assert views(client) == 1
    del held
    assert views(client) == 0


@pytest.mark.parametrize("made", COPIES)
def test_a_copy_holds_nothing(client: TransferQueueClient, meta: BatchMeta, made: str) -> None:
    view = client.get_data(meta, fields=["x"])["x"]
    held = COPIES[made](view)
    assert views(client) == 1
    del view
    assert views(client) == 0
    del held
    WEIGHT.grad = None


def test_what_aliases_show_while_the_space_of_cleared_rows_is_wanted(
    client: TransferQueueClient, meta: BatchMeta
) -> None:
    """Through each alias the stored bytes, after the rows were cleared and every free byte was written over."""
    x = client.get_data(meta, fields=["x"])["x"]
    r = client.get_data(meta, fields=["r"])["r"]
    held = [x.numpy()[3], torch.from_numpy(x.numpy()[::2]), x.untyped_storage(), memoryview(x.numpy()), r.values()[5:]]
    graph = (WEIGHT * x).sum()
    saved = io.BytesIO()
    torch.save(x[2:3], saved)
    assert saved.getbuffer().nbytes < 2 * ROWS * WIDTH * 8, "what was viewed, and nothing of the segment around it"
    del x, r
    client.clear_partition("p")
    client._store.reclaim()
    deeds.fill_all_room(client, 0xEE)
    expected = stored()
    assert np.array_equal(held[0], expected["x"][3].numpy())
    assert torch.equal(held[1], expected["x"][::2])
    assert torch.equal(torch.empty(0, dtype=torch.float64).set_(held[2]), expected["x"].flatten())
    assert np.array_equal(np.asarray(held[3]), expected["x"].numpy())
    assert torch.equal(held[4], expected["r"].values()[5:])
    graph.backward()
    assert torch.equal(WEIGHT.grad, expected["x"])  # type: ignore[arg-type]
    WEIGHT.grad = None
    saved.seek(0)
    assert torch.equal(torch.load(saved), expected["x"][2:3])
    del graph
    while held:
        assert views(client) > 0
        held.pop()
    assert views(client) == 0


def test_a_jagged_field_is_held_by_its_parts(client: TransferQueueClient, meta: BatchMeta) -> None:
    got = client.get_data(meta, fields=["r"])["r"]
    kept = [got.values(), got.unbind()[3], got.values().numpy()[7:9]]
    row = kept[1]
    del got
    while kept:
        assert views(client) == 1
        kept.pop()
    assert views(client) == 1
    assert torch.equal(row, stored()["r"].unbind()[3])
    del row
    assert views(client) == 0
