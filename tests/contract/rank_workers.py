"""Worker classes of `test_ranks`: module level, so that ranks import them."""

from __future__ import annotations

import os
import socket
from typing import Any

import torch
import torch.distributed as dist

from transferqueue.workers import (
    DataProto,
    Dispatch,
    Execute,
    Worker,
    destroy_process_group,
    init_process_group,
    initialize_global_process_group_ray,
    make_mesh,
    register,
    stateless_init_process_group,
)
from transferqueue.workers.data_proto import all_gather_data_proto


class Member(Worker):
    """A rank that tells what it was told, and joins groups."""

    def __init__(self) -> None:
        super().__init__()
        self.master_at_start = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
        self.weights = torch.zeros(3)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def told(self) -> dict[str, Any]:
        return {
            **{key: os.environ.get(key) for key in self.env_keys()},
            "rank_info": self.rank_info,
            "nodes": {rank: node.node_ip for rank, node in self.rank_nodes.items()},
            "node_id": self.get_node_id(),
            "node_ids": [node.node_id for node in self.rank_nodes.values()],
            "devices": self.get_cuda_visible_devices(),
            "device_index": self.device_index,
            "master": self.master_at_start,
            "in_process_group": dist.is_initialized(),
        }

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def somebody_else_listens(self, port: int) -> str:
        try:
            socket.create_server(("", port)).close()
        except OSError as error:
            return str(error)
        return "listening"

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def join(self) -> tuple[float, tuple[int, bool], list[int]]:
        """The mixed group, twice (idempotent), and two meshes of it with different DP sizes."""
        initialize_global_process_group_ray(timeout_second=60)
        initialize_global_process_group_ray(timeout_second=60)
        self._register_device_mesh("train", make_mesh({"dp": 2, "tp": 1}))
        self._register_device_mesh("infer", make_mesh({"dp": 1, "tp": 2}))
        total = torch.tensor([float(self.rank + 1)])
        dist.all_reduce(total)
        return total.item(), (self.query_dispatch_info("train"), self.query_collect_info("infer")), self._ranks()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def join_by_torch(self) -> tuple[float, list[int]]:
        """As a program does that knows only torch."""
        dist.init_process_group("gloo")
        total = torch.tensor([float(self.rank + 1)])
        dist.all_reduce(total)
        return total.item(), self._ranks()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def meeting_point(self) -> tuple[str, str]:
        return self.reserve_master_addr_port()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def sync_weights(self, master: tuple[str, str], first_rank: int, world_size: int) -> list[float]:
        """Rank 0 of the new group sends its weights to all others of it; then the default groups work as before."""
        rank = first_rank + self.rank
        if rank == 0:
            self.weights = torch.tensor([1.0, 2.0, 3.0])
        with stateless_init_process_group(*master, rank, world_size, "cpu", timeout_s=60.0) as group:
            group.broadcast(self.weights, src=0)
            total = group.all_reduce(torch.ones(1))
        assert total.item() == world_size
        dist.all_reduce(torch.ones(1))
        return list(self.weights.tolist())

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def gather(self) -> tuple[list[list[int]], list[str], dict[str, Any]]:
        """One row of rank 0, two of rank 1."""
        rows = [torch.arange(self.rank + number + 1) for number in range(self.rank + 1)]
        ragged = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
        data = DataProto.from_dict({"ids": ragged}, {"name": [f"rank {self.rank}"] * len(rows)}, {"own": self.rank})
        all_gather_data_proto(data)
        return [row.tolist() for row in data.batch["ids"].unbind()], list(data.non_tensor_batch["name"]), data.meta_info

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def leave(self) -> None:
        destroy_process_group()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def join_again(self, init_method: str | None) -> float:
        if init_method is not None:
            os.environ["DIST_INIT_METHOD"] = init_method
        init_process_group("gloo", timeout_s=60.0)
        total = torch.tensor([float(self.rank + 1)])
        dist.all_reduce(total)
        return total.item()

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def pass_on(self, master: tuple[str, str], first_rank: int, world_size: int) -> float:
        """A number goes from rank to rank of a new group, each adding one."""
        rank, number = first_rank + self.rank, torch.zeros(1)
        with stateless_init_process_group(*master, rank, world_size) as group:
            if rank > 0:
                group.recv(number, src=rank - 1)
            number += 1
            if rank < world_size - 1:
                group.send(number, dst=rank + 1)
            group.barrier()
        return number.item()

    def _ranks(self) -> list[int]:
        return [dist.get_rank(), dist.get_world_size()]
