"""What processes of every kind do with views that they were given, and with ones that they get themselves."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.utils.data import Dataset

import transferqueue as tq
from transferqueue import BatchMeta

ROWS, WIDTH = 8, 20_000  # of int64: 1.2 MiB


def batch(version: int) -> torch.Tensor:
    """int64 [ROWS, WIDTH], every number of it says which version it is of."""
    return torch.arange(ROWS * WIDTH).reshape(ROWS, WIDTH) + version * 1_000_003


def read_later(
    name: str, stable: BatchMeta, held: list[torch.Tensor], delay_s: float
) -> tuple[list[torch.Tensor], bool]:
    """After `delay_s`: what it was given, as it is now, and whether what it gets itself is right."""
    time.sleep(delay_s)
    ours = [view for view in held if torch.equal(view, batch(1))]
    client = tq.attach(name).client
    got = client.get_data(stable)["x"]
    mine = client.put(tq.get_data(stable), partition_id="children")
    fine = torch.equal(got, batch(0)) and torch.equal(client.get_data(mine)["x"], batch(0))
    got.fill_(-1)
    client.clear_samples(mine)
    return ours, fine


def send_later(pipe: Any, *arguments: Any) -> None:
    """For a bare process: the answer goes through a pipe."""
    ours, fine = read_later(*arguments)
    pipe.send((len(ours), fine))
    pipe.close()


class ClientRows(Dataset):  # type: ignore[type-arg]
    """Rows that the worker gets itself: by a client that was pickled, or by its session's name."""

    def __init__(self, stable: BatchMeta, name: str, client: tq.TransferQueueClient | None) -> None:
        self.stable, self.name, self.client = stable, name, client

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> tuple[int, torch.Tensor]:
        client = self.client or tq.attach(self.name).client
        got = client.get_data(self.stable.select_samples([row]))["x"][0]
        got += 1  # its own pages
        return row, got


class HeldRows(Dataset):  # type: ignore[type-arg]
    """Rows of views that were made in the loader's process, and rows that the worker gets itself, side by side."""

    def __init__(self, name: str, stable: BatchMeta, held: list[torch.Tensor], delay_s: float) -> None:
        self.name, self.stable, self.held, self.delay_s = name, stable, held, delay_s

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(self.delay_s)
        self.delay_s = 0.0
        got = tq.attach(self.name).client.get_data(self.stable.select_samples([row]))["x"][0]
        return self.held[0][row], got
