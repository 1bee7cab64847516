"""The base class of ranks."""

from __future__ import annotations

import os
import socket

import pytest

from transferqueue.workers import MeshNotRegisteredError, MeshRegisteredError, RankInfo, Worker
from transferqueue.workers.master_port import reserved_port
from transferqueue.workers.ranks import ENVIRONMENT_KEYS

VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES")


class Plain(Worker):
    def __init__(self) -> None:  # does not call super().__init__()
        self.ready = True


def test_a_rank_reads_its_place_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    info = RankInfo(3, 4, 1, 2, "10.0.0.1", "1234")
    for name, value in info.to_environment().items():
        monkeypatch.setenv(name, value)
    worker = Plain()
    assert (worker.rank, worker.world_size, worker.local_rank, worker.local_world_size) == (3, 4, 1, 2)
    assert worker.get_master_addr_port() == ("10.0.0.1", "1234")
    assert RankInfo.from_environment() == info


def test_outside_a_group_there_is_one_rank() -> None:
    assert RankInfo.from_environment({}) == RankInfo(0, 1, 0, 1, None, None)
    with pytest.raises(ValueError, match="RANK must be an integer, got 'x'"):
        RankInfo.from_environment({"RANK": "x"})


def test_meshes() -> None:
    worker = Plain()
    worker._register_dispatch_collect_info("actor", dp_rank=1, is_collect=False)
    worker._register_dispatch_collect_info("ref", dp_rank=0, is_collect=True)
    assert (worker.query_dispatch_info("actor"), worker.query_collect_info("actor")) == (1, False)
    assert (worker._query_dispatch_info("ref"), worker._query_collect_info("ref")) == (0, True)
    with pytest.raises(ValueError, match="registered already"):
        worker._register_dispatch_collect_info("ref", dp_rank=0, is_collect=True)
    with pytest.raises(ValueError, match="negative"):
        worker._register_dispatch_collect_info("third", dp_rank=-1, is_collect=True)
    with pytest.raises(KeyError, match="'third' is not registered on rank 0 of Plain; registered: 'actor', 'ref'"):
        worker.query_dispatch_info("third")
    assert Plain()._dispatch_collect == {}, "meshes belong to one object"


def test_a_worker_that_holds_workers_republishes_their_meshes() -> None:
    outer, inner, both = Plain(), Plain(), Plain()
    inner._register_dispatch_collect_info("train", dp_rank=3, is_collect=True)
    outer.set_dispatch_collect("actor", **inner.get_dispatch_collect())
    assert (outer.query_dispatch_info("actor"), outer.query_collect_info("actor")) == (3, True)
    with pytest.raises(MeshRegisteredError, match="mesh 'actor' is registered already") as caught:
        outer.set_dispatch_collect("actor", **inner.get_dispatch_collect())
    assert isinstance(caught.value, (ValueError, AssertionError))
    both._register_dispatch_collect_info("train", dp_rank=3, is_collect=True)
    both._register_dispatch_collect_info("infer", dp_rank=1, is_collect=False)
    outer.set_dispatch_collect("infer", **both.get_dispatch_collect())
    assert (outer.query_dispatch_info("infer"), outer.query_collect_info("infer")) == (1, False)
    with pytest.raises(ValueError, match="several meshes"):
        outer.set_dispatch_collect("rollout", **both.get_dispatch_collect())
    with pytest.raises(MeshNotRegisteredError, match="has registered no mesh yet"):
        outer.set_dispatch_collect("rollout", **Plain().get_dispatch_collect())
    with pytest.raises(ValueError, match=r"dispatch_dp_rank has the meshes \['a'\]"):
        outer.set_dispatch_collect("rollout", {"a": 1}, {"b": True})
    assert outer.get_dispatch_collect() == {
        "dispatch_dp_rank": {"actor": 3, "infer": 1},
        "collect_dp_rank": {"actor": True, "infer": False},
    }


def test_an_unregistered_mesh_is_the_error_that_programs_catch() -> None:
    with pytest.raises(AssertionError) as caught:
        Plain().query_collect_info("actor")
    assert isinstance(caught.value, (KeyError, MeshNotRegisteredError))
    assert str(caught.value).startswith("mesh 'actor' is not registered")


@pytest.fixture
def in_group(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of a rank, whatever the one of the tests is; restored afterwards."""
    for name in (*ENVIRONMENT_KEYS, "WG_RANK_NODES", *VISIBLE):
        monkeypatch.setenv(name, "")  # so that it is restored, also where a worker sets it
        monkeypatch.delenv(name)
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "[fd00::1]", "MASTER_PORT": "1234"}.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_the_environment_is_read_and_written_back(in_group: pytest.MonkeyPatch) -> None:
    worker = Worker()
    attributes = {key: getattr(worker, f"_{key.lower()}") for key in Worker.env_keys()}
    assert attributes == {
        "WORLD_SIZE": 4,
        "RANK": 3,
        "LOCAL_WORLD_SIZE": 1,
        "LOCAL_RANK": 0,
        "MASTER_ADDR": "[fd00::1]",
        "MASTER_PORT": "1234",
        "WG_BACKEND": None,
        "WG_PREFIX": None,
        "RAY_LOCAL_WORLD_SIZE": 1,
        "RAY_LOCAL_RANK": 0,
        "REDIS_STORE_SERVER_HOST": "fd00::1",
        "DISABLE_WORKER_INIT": None,
        "CUDA_VISIBLE_DEVICES": None,
    }
    assert {key: os.environ.get(key) for key in Worker.env_keys()} == {
        key: None if value is None else str(value) for key, value in attributes.items()
    }


def test_outside_a_group_the_environment_stays(in_group: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        in_group.delenv(name)
    before = dict(os.environ)
    assert (Worker().rank, Worker().world_size) == (0, 1)
    assert dict(os.environ) == before


def test_devices_are_set_up_by_the_constructor(in_group: pytest.MonkeyPatch) -> None:
    in_group.setenv("HIP_VISIBLE_DEVICES", "2")
    worker = Worker()
    assert worker.get_cuda_visible_devices() == "2"
    assert "HIP_VISIBLE_DEVICES" not in os.environ
    assert Worker(cuda_visible_devices="5").get_cuda_visible_devices() == "5"
    in_group.setenv("HIP_VISIBLE_DEVICES", "3")
    with pytest.raises(AssertionError, match="HIP_VISIBLE_DEVICES='3' and CUDA_VISIBLE_DEVICES='5'"):
        Worker()
    in_group.setenv("DISABLE_WORKER_INIT", "1")
    quiet = Worker(cuda_visible_devices="7")
    assert (quiet.rank, quiet._rank, quiet._cuda_visible_devices) == (3, 3, "7")  # type: ignore[attr-defined]
    assert (os.environ["HIP_VISIBLE_DEVICES"], os.environ["CUDA_VISIBLE_DEVICES"]) == ("3", "5")
    in_group.delenv("CUDA_VISIBLE_DEVICES")
    assert quiet.get_cuda_visible_devices() == "not set"


def test_where_ray_leaves_all_devices_visible(in_group: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    in_group.setattr("transferqueue.workers.worker.set_device", chosen.append)
    in_group.setattr("transferqueue.workers.worker.accelerator_ids", lambda: {"GPU": ["6"]})
    in_group.setenv("LOCAL_RANK", "1")
    in_group.setenv("RAY_LOCAL_RANK", "1")
    in_group.setenv("CUDA_VISIBLE_DEVICES", "6")
    assert (Worker().local_rank, Worker().device_index, chosen) == (1, 0, [])
    in_group.setenv("RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES", "1")
    in_group.delenv("CUDA_VISIBLE_DEVICES")
    worker = Worker()
    assert (worker.local_rank, worker.device_index, chosen) == (6, 6, [6])
    assert (os.environ["LOCAL_RANK"], os.environ["RAY_LOCAL_RANK"]) == ("6", "1")


def test_functions_are_run_with_and_without_the_worker() -> None:
    worker = Plain()
    assert worker.execute_with_func_generator(lambda *args, **named: (args, named), 1, x=2) == ((worker, 1), {"x": 2})
    assert worker.execute_func_rank_zero(max, 1, 2) == 2


def test_ports_and_addresses_of_the_node() -> None:
    worker = Plain()
    address, port = worker.get_available_master_addr_port()
    assert (address, worker._get_node_ip()) == ("127.0.0.1", "127.0.0.1")
    socket.create_server(("", int(port))).close()
    address, port = worker.reserve_master_addr_port()
    try:
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("", int(port)))
    finally:
        reserved_port(int(port)).release()
    assert worker.get_node_id()


def test_rank_zero_speaks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Plain().print_rank0("hello")
    monkeypatch.setenv("RANK", "1")
    Plain().print_rank0("silence")
    assert capsys.readouterr().out == "hello\n"
