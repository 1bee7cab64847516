"""A process group apart from torch's default one, for instance between trainers and inference engines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist

from transferqueue.workers.backends import device_backend, new_backend
from transferqueue.workers.devices import set_device
from transferqueue.workers.master_port import hand_over_port

DEFAULT_TIMEOUT_S = 300.0


class StatelessProcessGroup:
    """Collectives among processes that may each be in a default group of their own; see
    `stateless_init_process_group`, which makes it.

    Tensors are on `device`; what each call receives is written into its argument. A collective that a member does not
    join raises `RuntimeError` after the group's timeout. Usable as a context manager, which closes it.

    Attributes:
        rank, world_size: of this group.
        device: where tensors lie.
        backend: ``"gloo"`` for the CPU, ``"nccl"`` or ``"hccl"`` for an accelerator.
    """

    def __init__(self, group: Any, store: Any, rank: int, world_size: int, device: torch.device, backend: str) -> None:
        self._group: Any = group
        self._store: Any = store  # rank 0's is the server
        self.rank = rank
        self.world_size = world_size
        self.device = device
        self.backend = backend

    def broadcast(self, tensor: torch.Tensor, src: int, stream: Any = None) -> torch.Tensor:
        """`tensor` of rank `src`, on every rank. `stream` (of the accelerator) is the one to work on."""
        self._run(lambda group: group.broadcast(tensor, src), stream)
        return tensor

    def all_reduce(
        self, tensor: torch.Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM, stream: Any = None
    ) -> torch.Tensor:
        """The sum (or `op`) over all ranks, in place."""
        self._run(lambda group: group.allreduce(tensor, op), stream)
        return tensor

    def all_gather(self, outputs: Sequence[torch.Tensor], tensor: torch.Tensor, stream: Any = None) -> None:
        """`tensor` of rank i into ``outputs[i]``; all of one shape."""
        self._run(lambda group: group.allgather(list(outputs), tensor), stream)

    def send(self, tensor: torch.Tensor, dst: int, stream: Any = None) -> None:
        """Waits until rank `dst` has received it (gloo), or until it is queued (an accelerator's library)."""
        self._run(lambda group: group.send([tensor], dst, 0), stream)

    def recv(self, tensor: torch.Tensor, src: int, stream: Any = None) -> torch.Tensor:
        """What rank `src` sends."""
        self._run(lambda group: group.recv([tensor], src, 0), stream)
        return tensor

    def barrier(self) -> None:
        """Until every rank is here."""
        self.all_reduce(torch.zeros(1, device=self.device))
        if self.device.type != "cpu":
            getattr(torch, self.device.type).synchronize(self.device)

    def close(self) -> None:
        """Leaves the group. Idempotent."""
        self._group = self._store = None

    def __enter__(self) -> StatelessProcessGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, call: Any, stream: Any) -> None:
        if self._group is None:
            raise RuntimeError(f"rank {self.rank} has closed this process group")
        if stream is None:
            call(self._group).wait()
            return
        with getattr(torch, self.device.type).stream(stream):
            call(self._group).wait()


def stateless_init_process_group(
    master_address: str,
    master_port: int | str,
    rank: int,
    world_size: int,
    device: torch.device | int | str = "cpu",
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> StatelessProcessGroup:
    """A process group that is not torch's default one; every member calls it and waits for the others.

    Members may each be in a default group already, and in several of these. Rank 0 listens at the address: take both
    from ``worker.reserve_master_addr_port()`` there, so that nobody else gets the port in between.

    Args:
        master_address: of rank 0's node; IPv6 with or without brackets.
        master_port: a port on it.
        rank: this process's rank in the new group.
        world_size: its size.
        device: where the tensors will lie; a number means that device of the accelerator.
        timeout_s: how long to wait for members, here and in each collective.

    Raises:
        BackendNotAvailableError: torch has no backend for `device` here.
        ValueError: `rank` is not in 0 to `world_size` - 1.
        torch.distributed.DistError: the others did not come in time, or the port is another process's.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is not in 0 to {world_size - 1}, the ranks of a group of {world_size}")
    place = torch.device(device)
    backend = device_backend(place)
    if place.type != "cpu" and place.index is not None:
        set_device(place.index)
    port, timeout = int(master_port), timedelta(seconds=timeout_s)
    store = dist.TCPStore(  # type: ignore[attr-defined]
        master_address.strip("[]"), port, world_size, is_master=rank == 0, timeout=timeout, multi_tenant=True
    )
    hand_over_port(port)
    # Keys apart from those of a default group that may have met at the same port.
    keys = dist.PrefixStore("stateless/", store)  # type: ignore[attr-defined]
    group = new_backend(backend, keys, rank, world_size, timeout)
    made = StatelessProcessGroup(group, store, rank, world_size, place, backend)
    made.barrier()  # rank 0 may close at once, and the others have the addresses of their peers from its server
    return made
