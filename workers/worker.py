"""The base class of what runs in a rank."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from transferqueue.workers.dispatch_modes import Dispatch
from transferqueue.workers.execute import Execute
from transferqueue.workers.ranks import ENVIRONMENT_KEYS, RankInfo
from transferqueue.workers.ray_runtime import node_ip
from transferqueue.workers.register import register


class Worker:
    """One rank of a worker group: knows its rank, and which shard of each mesh it works on.

    A subclass need not call ``super().__init__()``: what the group set in the environment is read when first asked for.
    """

    @property
    def rank_info(self) -> RankInfo:
        """Rank, sizes and master address. Read from the environment once and kept."""
        info = self.__dict__.get("_rank_info")
        if info is None:
            info = self.__dict__["_rank_info"] = RankInfo.from_environment()
        return info

    @property
    def rank(self) -> int:
        return self.rank_info.rank

    @property
    def world_size(self) -> int:
        return self.rank_info.world_size

    @property
    def local_rank(self) -> int:
        return self.rank_info.local_rank

    @property
    def local_world_size(self) -> int:
        return self.rank_info.local_world_size

    @classmethod
    def env_keys(cls) -> list[str]:
        """The environment variables that a group sets for its ranks."""
        return list(ENVIRONMENT_KEYS)

    def get_master_addr_port(self) -> tuple[str | None, str | None]:
        """Where the ranks meet, for ``torch.distributed``'s ``env://``."""
        return self.rank_info.master_addr, self.rank_info.master_port

    def get_cuda_visible_devices(self) -> str:
        return os.environ.get("CUDA_VISIBLE_DEVICES", "not set")

    @staticmethod
    def _get_node_ip() -> str:
        return node_ip()

    def print_rank0(self, *args: object, **kwargs: object) -> None:
        """`print`, on rank 0 only."""
        if self.rank == 0:
            print(*args, **kwargs)  # type: ignore[call-overload]

    def _register_dispatch_collect_info(self, mesh_name: str, dp_rank: int, is_collect: bool) -> None:
        """Says which shard this rank works on in a mesh, and whether it writes back for its replica.

        Every rank calls it once per mesh, usually when the process group is set up. Exactly one rank of each DP rank
        must pass ``is_collect=True``. `ValueError` when the mesh is registered already or `dp_rank` is negative.
        """
        if mesh_name in self._dispatch_collect:
            raise ValueError(f"mesh {mesh_name!r} is registered already on rank {self.rank}")
        if dp_rank < 0:
            raise ValueError(f"mesh {mesh_name!r}: DP rank {dp_rank} of rank {self.rank} is negative")
        self._dispatch_collect[mesh_name] = (int(dp_rank), bool(is_collect))

    def query_dispatch_info(self, mesh_name: str) -> int:
        """This rank's DP rank in the mesh. `KeyError` naming the meshes that are registered."""
        return self._mesh(mesh_name)[0]

    def query_collect_info(self, mesh_name: str) -> bool:
        """Whether this rank collects in the mesh. `KeyError` naming the meshes that are registered."""
        return self._mesh(mesh_name)[1]

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def _query_dispatch_info(self, mesh_name: str) -> int:
        return self.query_dispatch_info(mesh_name)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def _query_collect_info(self, mesh_name: str) -> bool:
        return self.query_collect_info(mesh_name)

    @register(dispatch_mode=Dispatch.ALL_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def execute_func_rank_zero(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs ``func(*args, **kwargs)`` on rank 0."""
        return func(*args, **kwargs)

    @property
    def _dispatch_collect(self) -> dict[str, tuple[int, bool]]:
        return self.__dict__.setdefault("_dispatch_collect_info", {})  # type: ignore[no-any-return]

    def _mesh(self, mesh_name: str) -> tuple[int, bool]:
        try:
            return self._dispatch_collect[mesh_name]
        except KeyError:
            raise KeyError(
                f"mesh {mesh_name!r} is not registered on rank {self.rank} of {type(self).__name__}; registered: "
                f"{', '.join(map(repr, self._dispatch_collect)) or 'none'}. Call "
                "self._register_dispatch_collect_info(mesh_name, dp_rank=..., is_collect=...) first"
            ) from None
