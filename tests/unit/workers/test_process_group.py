"""Joining process groups, as far as one process can tell; `tests/contract/test_ranks.py` has several."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from transferqueue.workers import (
    BackendNotAvailableError,
    destroy_process_group,
    init_process_group,
    initialize_global_process_group_ray,
    make_mesh,
    mesh_dp_info,
    stateless_init_process_group,
)
from transferqueue.workers.backends import check_backend, default_backend, device_backend, new_backend
from transferqueue.workers.master_port import reserve_master_port

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The only rank of a group, which nobody has given a meeting point."""
    for name in ("MASTER_ADDR", "MASTER_PORT", "DIST_INIT_METHOD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    yield monkeypatch
    destroy_process_group()


def test_backends_are_chosen_by_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.is_available():
        assert default_backend() == "cpu:gloo,cuda:nccl"
        return
    assert default_backend() == "gloo"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    assert (default_backend(), device_backend(torch.device("cuda:1"))) == ("cpu:gloo,cuda:nccl", "nccl")
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    assert default_backend() == "cpu:gloo,cuda:gloo"
    with pytest.raises(BackendNotAvailableError, match=r"built without backend 'nccl'"):
        check_backend("nccl")


def test_ascend_counts_once_its_plugin_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Npu:
        @staticmethod
        def is_available() -> bool:
            return True

    with pytest.raises(BackendNotAvailableError, match="backend 'hccl' of 'cpu:gloo,npu:hccl' needs a device of kind"):
        check_backend("cpu:gloo,npu:hccl")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch, "npu", Npu, raising=False)
    assert default_backend() == "cpu:gloo,npu:gloo", "its library has not been registered"
    monkeypatch.setattr(dist.Backend, "_plugins", {"HCCL": None})
    assert check_backend(default_backend()) == "cpu:gloo,npu:hccl"


@pytest.mark.parametrize("extended", [False, True])
def test_a_backend_of_a_plugin_is_made_as_torch_makes_it(monkeypatch: pytest.MonkeyPatch, extended: bool) -> None:
    class Plugin:
        extended_api = extended

        @staticmethod
        def creator_fn(*args: Any) -> Any:
            if not extended:
                return args
            options = args[0]
            assert (options.global_ranks_in_group, args[1]) == ([0, 1], None)
            return options.store, options.group_rank, options.group_size, options.timeout

    monkeypatch.setattr(dist.Backend, "_plugins", {"HCCL": Plugin})
    store, timeout = dist.HashStore(), dist.default_pg_timeout
    made = new_backend("hccl", store, 1, 2, timeout)
    assert made[1:] == (1, 2, timeout)


def test_what_is_no_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="a backend is 'gloo' or"):
        check_backend("cpu:")
    with pytest.raises(BackendNotAvailableError, match="without backend 'gluo'"):
        check_backend("gluo")
    with pytest.raises(BackendNotAvailableError, match="no backend is known for tensors on meta"):
        device_backend(torch.device("meta"))


def test_joining_without_a_meeting_point(alone: pytest.MonkeyPatch) -> None:
    for join in (init_process_group, initialize_global_process_group_ray):
        with pytest.raises(ValueError, match="no rank of a worker group"):
            join()
    assert not dist.is_initialized()


def test_the_meeting_point_may_be_another(alone: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone.setenv("DIST_INIT_METHOD", f"file://{tmp_path}/meeting")
    assert initialize_global_process_group_ray(timeout_second=30).world_size == 1
    assert (tmp_path / "meeting").exists()
    initialize_global_process_group_ray()
    assert "gloo" in dist.get_backend()


def test_a_group_can_be_left_and_joined_again(alone: pytest.MonkeyPatch) -> None:
    held = reserve_master_port()
    alone.setenv("MASTER_ADDR", "127.0.0.1")
    alone.setenv("MASTER_PORT", str(held.port))
    for _ in range(3):
        init_process_group()
        assert not held.serves, "the server is the group's, and ends with it"
        destroy_process_group()
        destroy_process_group()
    held.release()


def test_meshes_of_torch(alone: pytest.MonkeyPatch, tmp_path: Path) -> None:
    alone.setenv("DIST_INIT_METHOD", f"file://{tmp_path}/meeting")
    init_process_group()
    mesh = make_mesh({"replicate": 1, "shard": 1, "tp": 1})
    assert mesh_dp_info(mesh, ("replicate", "shard")) == (0, True)
    with pytest.raises(ValueError, match=r"dimensions \['dp'\] are not all in the mesh, .* \['replicate', 'shard'"):
        mesh_dp_info(mesh)
    with pytest.raises(ValueError, match="has 2 places; the group has 1 ranks"):
        make_mesh({"dp": 2})


def test_a_stateless_group_of_one() -> None:
    held = reserve_master_port()
    before = dict(os.environ)
    with stateless_init_process_group("127.0.0.1", str(held.port), 0, 1) as group:
        tensor = torch.ones(2)
        assert group.broadcast(tensor, src=0) is tensor
        outputs = [torch.zeros(2)]
        group.all_gather(outputs, tensor)
        assert outputs[0].tolist() == group.all_reduce(tensor, dist.ReduceOp.MAX).tolist() == [1.0, 1.0]
        assert (group.backend, group.device, group.rank, group.world_size) == ("gloo", torch.device("cpu"), 0, 1)
        assert not dist.is_initialized()
    with pytest.raises(RuntimeError, match="has closed this process group"):
        group.barrier()
    held.release()
    assert dict(os.environ) == before
    with pytest.raises(ValueError, match="rank 2 is not in 0 to 1"):
        stateless_init_process_group("127.0.0.1", 1, 2, 2)
