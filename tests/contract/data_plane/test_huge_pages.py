"""Memory in use is moved to huge pages by the service; views and allocations are then mapped with few page faults."""

from __future__ import annotations

import os
import resource
import time

import pytest
import torch
from tensordict import TensorDict

from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(60)
MIB = 1 << 20
PAGE = 4096


def minor_faults() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


@pytest.fixture
def stored(client: TransferQueueClient) -> torch.Tensor:
    """32 MiB that were put once and cleared, so that their extent is warm, on huge pages and free."""
    rows = torch.arange(32 * MIB // 8).view(64, -1)
    client.put(TensorDict({"x": rows[:, :4].clone()}, [64]), partition_id="p")  # leaves a little space reserved ahead
    client.put(TensorDict({"x": rows}, [64]), partition_id="p")
    until_s = time.monotonic() + 10
    while client.stats().huge_bytes < 28 * MIB:
        if time.monotonic() > until_s:
            pytest.skip(f"this system gives no huge pages: {client.stats().huge_bytes} bytes after 10 s")
        time.sleep(0.05)
    client.clear_partition("p")
    return rows


def test_a_view_is_mapped_with_few_faults(client: TransferQueueClient, stored: torch.Tensor) -> None:
    meta = client.put(TensorDict({"x": stored}, [64]), partition_id="p")
    view = client.get_data(meta)["x"]
    before = minor_faults()
    pages = view.view(torch.uint8).flatten()[::PAGE].sum()
    # 16 huge pages, and whatever the interpreter does; small pages: one fault for 16 of them, 512 in all
    assert minor_faults() - before < 120
    assert pages == stored.view(torch.uint8).flatten()[::PAGE].sum()
    assert torch.equal(view, stored)
    view += 1
    assert torch.equal(view, stored + 1)
    assert torch.equal(client.get_data(meta)["x"], stored)


def test_an_allocation_is_filled_with_few_faults(client: TransferQueueClient, stored: torch.Tensor) -> None:
    allocation = client.alloc({"x": (tuple(stored.shape[1:]), torch.int64)}, partition_id="p", batch_size=64)
    before = minor_faults()
    allocation.data["x"].copy_(stored)
    assert minor_faults() - before < 800  # small pages: one fault each, 8,192
    kept = allocation.data["x"]
    meta = allocation.commit()
    kept += 1  # it was alive at commit: private from then on
    assert torch.equal(client.get_data(meta)["x"], stored)
    assert torch.equal(kept, stored + 1)


def test_a_child_sees_its_own_pages(client: TransferQueueClient, stored: torch.Tensor) -> None:
    meta = client.put(TensorDict({"x": stored}, [64]), partition_id="p")
    view = client.get_data(meta)["x"]
    assert view[0, 0] == 0
    pid = os.fork()
    if pid == 0:
        try:
            view[0].fill_(7)
            os._exit(0 if bool((view[0] == 7).all()) and torch.equal(view[1:], stored[1:]) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert torch.equal(view, stored)
