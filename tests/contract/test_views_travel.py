"""A view that is sent somewhere carries its own rows, never the segment: DataLoader queues and Ray's object store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch.utils.data import DataLoader, Dataset

from tests.support.sessions import embedded

pytestmark = pytest.mark.timeout(120)
ROWS, WIDTH, FIRST, TAKEN = 64, 4096, 10, 8


class Rows(Dataset):  # type: ignore[type-arg]
    def __init__(self, column: torch.Tensor) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, row: int) -> torch.Tensor:
        return self.column[row]


@pytest.fixture
def view() -> Iterator[torch.Tensor]:
    """8 of 64 stored rows, viewed: 256 KiB of a 2 MiB block."""
    with embedded() as session:
        stored = torch.arange(ROWS * WIDTH).view(ROWS, WIDTH)
        meta = session.client.put(TensorDict({"x": stored}, [ROWS]), partition_id="p")
        yield session.client.get_data(meta.select_samples(list(range(FIRST, FIRST + TAKEN))))["x"]


def expected() -> torch.Tensor:
    return torch.arange(ROWS * WIDTH).view(ROWS, WIDTH)[FIRST : FIRST + TAKEN]


def test_through_the_queue_of_a_data_loader(view: torch.Tensor) -> None:
    loader = DataLoader(Rows(view), batch_size=None, num_workers=1, multiprocessing_context="fork")
    got = list(loader)
    assert torch.equal(torch.stack(got), expected())
    assert all(row.untyped_storage().nbytes() <= TAKEN * WIDTH * 8 for row in got)
    assert torch.equal(view, expected())


def test_into_rays_object_store(ray_cluster: Any, view: torch.Tensor) -> None:
    context = ray_cluster._private.worker.global_worker.get_serialization_context()
    assert context.serialize(view).total_bytes < TAKEN * WIDTH * 8 * 1.1
    assert torch.equal(ray_cluster.get(ray_cluster.put(view)), expected())
