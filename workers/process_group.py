"""Joining the collectives of a group, on `torch.distributed`. A worker never does by itself."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist

from transferqueue.workers.backends import check_backend, default_backend
from transferqueue.workers.master_port import hand_over_port
from transferqueue.workers.ranks import RankInfo

DIST_INIT_METHOD = "DIST_INIT_METHOD"


def init_process_group(backend: str = "gloo", timeout_s: float = 300.0) -> RankInfo:
    """Joins the default process group of this worker group; every rank calls it. A second call does nothing.

    Rank, world size and master address come from the environment that the worker group set; the environment variable
    ``DIST_INIT_METHOD`` (``tcp://...``, ``file://...``), when set, says where to meet instead. A collective that waits
    longer than `timeout_s` raises.

    Raises `ValueError` outside a worker group, `BackendNotAvailableError` (a `ValueError`) for a backend that cannot
    work here.
    """
    return _join(backend, timedelta(seconds=timeout_s))


def initialize_global_process_group_ray(timeout_second: float | None = None, backend: str | None = None) -> RankInfo:
    """`init_process_group` with what programs for verl expect of it: by default gloo for CPU tensors and the
    accelerator's own library for its tensors (``cpu:gloo,cuda:nccl``), with torch's own timeout."""
    timeout = None if timeout_second is None else timedelta(seconds=timeout_second)
    return _join(backend or default_backend(), timeout)


def _join(backend: str, timeout: timedelta | None) -> RankInfo:
    info = RankInfo.from_environment()
    if dist.is_initialized():
        return info
    init_method = os.environ.get(DIST_INIT_METHOD) or "env://"
    if init_method == "env://" and (info.master_addr is None or info.master_port is None):
        raise ValueError("no MASTER_ADDR and MASTER_PORT in the environment: this process is no rank of a worker group")
    dist.init_process_group(
        check_backend(backend), init_method=init_method, rank=info.rank, world_size=info.world_size, timeout=timeout
    )
    if info.master_port is not None:
        hand_over_port(int(info.master_port))
    return info


def destroy_process_group() -> None:
    """Leaves the default process group, when there is one.

    To join another one afterwards, let every rank leave before the first one joins: leave in one call on the group and
    join in the next. A rank that joins earlier meets the rendezvous of the old one, which ends under it.
    """
    if dist.is_initialized():
        dist.destroy_process_group()
