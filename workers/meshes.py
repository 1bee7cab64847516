"""Which shard of which mesh a rank works on, as its worker registers it and its group asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from transferqueue.workers.dispatch_modes import Dispatch
from transferqueue.workers.errors import MeshNotRegisteredError, MeshRegisteredError
from transferqueue.workers.register import register

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class MeshMember:
    """A rank's place in any number of meshes, each with a DP size of its own.

    Every rank of a group registers every mesh, usually when its process group is set up; a group asks once per mesh.
    """

    def _register_dispatch_collect_info(self, mesh_name: str, dp_rank: int, is_collect: bool) -> None:
        """Says which shard this rank works on in a mesh, and whether it writes back for its replica.

        Exactly one rank of each DP rank must pass ``is_collect=True``. Raises `MeshRegisteredError` (a `ValueError`)
        when the mesh is registered already, `ValueError` for a negative `dp_rank`.
        """
        meshes = self._dispatch_collect
        if mesh_name in meshes:
            raise MeshRegisteredError(
                f"mesh {mesh_name!r} is registered already on {self._mesh_owner()}, with DP rank "
                f"{meshes[mesh_name][0]}: register it once, or choose another name",
                mesh_name=mesh_name,
                registered=tuple(meshes),
            )
        if dp_rank < 0:
            raise ValueError(f"mesh {mesh_name!r}: DP rank {dp_rank} of {self._mesh_owner()} is negative")
        meshes[mesh_name] = (int(dp_rank), bool(is_collect))

    def _register_device_mesh(self, mesh_name: str, mesh: DeviceMesh, dp: str | tuple[str, ...] = "dp") -> None:
        """Registers a torch `DeviceMesh`: see `mesh_dp_info`."""
        from transferqueue.workers.device_mesh import mesh_dp_info

        dp_rank, is_collect = mesh_dp_info(mesh, dp)
        self._register_dispatch_collect_info(mesh_name, dp_rank, is_collect)

    def query_dispatch_info(self, mesh_name: str) -> int:
        """This rank's DP rank in the mesh. `MeshNotRegisteredError` (a `KeyError`) naming the meshes there are."""
        return self._mesh(mesh_name)[0]

    def query_collect_info(self, mesh_name: str) -> bool:
        """Whether this rank collects in the mesh. `MeshNotRegisteredError` (a `KeyError`) naming those there are."""
        return self._mesh(mesh_name)[1]

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def _query_dispatch_info(self, mesh_name: str) -> int:
        return self.query_dispatch_info(mesh_name)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def _query_collect_info(self, mesh_name: str) -> bool:
        return self.query_collect_info(mesh_name)

    def get_dispatch_collect(self) -> dict[str, Any]:
        """Every mesh of this rank: ``{"dispatch_dp_rank": {mesh: DP rank}, "collect_dp_rank": {mesh: collects}}``.

        The keyword arguments that `set_dispatch_collect` of another worker takes. A copy.
        """
        meshes = self._dispatch_collect.items()
        return {
            "dispatch_dp_rank": {name: dp_rank for name, (dp_rank, _) in meshes},
            "collect_dp_rank": {name: collects for name, (_, collects) in meshes},
        }

    def set_dispatch_collect(
        self, mesh_name: str, dispatch_dp_rank: Mapping[str, int], collect_dp_rank: Mapping[str, bool]
    ) -> None:
        """Registers the mesh of a worker that this one holds, under a name of this one::

            self.set_dispatch_collect("actor", **self.actor.get_dispatch_collect())

        Of several meshes the one called `mesh_name` is taken, else they must agree. Raises `MeshNotRegisteredError`
        when there is none, `MeshRegisteredError` when this worker has the mesh already, `ValueError` when the meshes
        differ or when one of the mappings lacks a mesh of the other.
        """
        if set(dispatch_dp_rank) != set(collect_dp_rank):
            raise ValueError(
                f"dispatch_dp_rank has the meshes {sorted(dispatch_dp_rank)} and collect_dp_rank "
                f"{sorted(collect_dp_rank)}; both come from get_dispatch_collect() of one worker"
            )
        held = {name: (dp_rank, collect_dp_rank[name]) for name, dp_rank in dispatch_dp_rank.items()}
        if not held:
            raise MeshNotRegisteredError(
                f"mesh {mesh_name!r} of {self._mesh_owner()}: the worker it comes from has registered no mesh yet",
                mesh_name=mesh_name,
            )
        if mesh_name not in held and len(set(held.values())) > 1:
            raise ValueError(
                f"mesh {mesh_name!r} of {self._mesh_owner()}: the worker it comes from has several meshes, {held}; "
                f"pass one of them, or register one as {mesh_name!r} there"
            )
        dp_rank, is_collect = held.get(mesh_name) or next(iter(held.values()))
        self._register_dispatch_collect_info(mesh_name, dp_rank, is_collect)

    @property
    def _dispatch_collect(self) -> dict[str, tuple[int, bool]]:
        # Not made in a constructor: a subclass need not call it.
        return self.__dict__.setdefault("_dispatch_collect_info", {})  # type: ignore[no-any-return]

    def _mesh(self, mesh_name: str) -> tuple[int, bool]:
        meshes = self._dispatch_collect
        if mesh_name not in meshes:
            raise MeshNotRegisteredError(
                f"mesh {mesh_name!r} is not registered on {self._mesh_owner()}; registered: "
                f"{', '.join(map(repr, meshes)) or 'none'}. Call "
                "self._register_dispatch_collect_info(mesh_name, dp_rank=..., is_collect=...) first",
                mesh_name=mesh_name,
                registered=tuple(meshes),
            )
        return meshes[mesh_name]

    def _mesh_owner(self) -> str:
        return f"rank {getattr(self, 'rank', 'unknown')} of {type(self).__name__}"
