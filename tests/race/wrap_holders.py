"""Who holds views while a store is written over and over."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import torch
from tensordict import TensorDict

import transferqueue as tq
from transferqueue import BatchMeta, TransferQueueClient

ROWS, WIDTH = 4, 12_000


def stored(version: int) -> TensorDict:
    """Dense and jagged columns of 200 to 400 KB each, and a short one that is copied when read."""
    dense = torch.arange(ROWS * WIDTH).reshape(ROWS, WIDTH) * 3 + version
    lengths = [WIDTH - 1_000 * row - version % 7 for row in range(ROWS)]
    ragged = torch.nested.nested_tensor(
        [torch.arange(length) + row * 100_000 + version for row, length in enumerate(lengths)], layout=torch.jagged
    )
    return TensorDict({"dense": dense, "ragged": ragged, "short": torch.full((ROWS,), version)}, [ROWS])


class Holder:
    """Views of one version in every read mode, parts of views, a view that was written, and what each must show."""

    def __init__(self, client: TransferQueueClient, meta: BatchMeta, version: int) -> None:
        whole = stored(version)
        expected = whole["dense"]
        self.views: list[tuple[torch.Tensor, torch.Tensor]] = []
        for mode in ("cow", "shared", "copy"):
            got = client.get_data(meta, mode=mode)
            self.views.append((got["dense"], expected))
            self.views.append((got["ragged"].values(), whole["ragged"].values()))
            self.views.append((got["short"], whole["short"]))
        self.views.append((client.get_data(meta)["dense"][2, 100:200], expected[2, 100:200].clone()))
        self.views.append((client.get_data(meta.select_samples([1]))["dense"], expected[1:2].clone()))
        array = client.get_data(meta)["dense"].numpy()
        self.views.append((torch.from_numpy(array[::2]), expected[::2].clone()))
        written = client.get_data(meta)["dense"]
        written[1].mul_(-1)  # some pages are its own, the others show the store
        self.views.append((written, expected.clone()))
        self.views[-1][1][1].mul_(-1)

    def look(self) -> None:
        """Fails unless every byte is as it was."""
        for number, (view, expected) in enumerate(self.views):
            assert torch.equal(view, expected), f"view {number} has changed"


def hold_elsewhere(pipe: Any, name: str, meta: BatchMeta, version: int) -> None:
    """In a process that attaches; looks whenever asked."""
    hold(pipe, Holder(tq.attach(name).client, meta, version))


def hold(pipe: Connection, holder: Holder) -> None:
    """Looks whenever asked, until told to end."""
    pipe.send("holds")
    while pipe.recv() != "end":
        holder.look()
        pipe.send("right")
