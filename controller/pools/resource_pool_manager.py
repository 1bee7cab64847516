"""The pools of a program, and which role runs on which."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from transferqueue.controller.errors import PoolNotFoundError
from transferqueue.controller.pools.placement import check_fits
from transferqueue.controller.pools.ray_resource_pool import DEFAULT_TIMEOUT_S, RayResourcePool


@dataclass
class ResourcePoolManager:
    """Pools by name, from a specification, and a pool for each role.

    Args:
        resource_pool_spec: pool name -> ranks per node, such as ``{"global_pool": [8, 8]}``.
        mapping: role -> pool name. A role is a `Role`, or whatever the program names roles with.
        max_colocate_count: how many groups may share each pool.
        resource_pool_dict: the pools; `create_resource_pool` fills it.
        use_gpu: whether ranks have accelerators; by pool name where pools differ (those not named have).
        bin_pack: keep each node entry on one node, as groups do by default.
        timeout_s: how long each pool waits for room that others hold.
    """

    resource_pool_spec: dict[str, list[int]]
    mapping: Mapping[Hashable, str]
    max_colocate_count: int = 3
    resource_pool_dict: dict[str, RayResourcePool] = field(default_factory=dict)
    use_gpu: bool | Mapping[str, bool] = True
    bin_pack: bool = True
    timeout_s: float = DEFAULT_TIMEOUT_S

    def create_resource_pool(self) -> None:
        """Makes the pools, and checks that the cluster has room for all of them at the same time, node by node.

        Nothing is reserved: each pool does that at its first use, or all of them in `reserve`.

        Raises:
            InsufficientResourcesError: they can never fit. Also a ValueError.
            PoolNotFoundError: a role is mapped to a pool that is not specified.
        """
        for role, name in self.mapping.items():
            if name not in self.resource_pool_spec:
                raise PoolNotFoundError(
                    f"role {role} is mapped to pool {name!r}; specified are {list(self.resource_pool_spec)}",
                    role=role,
                    known=tuple(self.resource_pool_spec),
                )
        pools = {
            name: RayResourcePool(
                process_on_nodes=process_on_nodes,
                use_gpu=self._uses_gpu(name),
                name_prefix=name,
                max_colocate_count=self.max_colocate_count,
                timeout_s=self.timeout_s,
            )
            for name, process_on_nodes in self.resource_pool_spec.items()
        }
        check_fits([pool.plan(self._strategy) for pool in pools.values()])
        self.resource_pool_dict.update(pools)

    def get_resource_pool(self, role: Hashable) -> RayResourcePool:
        """The pool of a role. `PoolNotFoundError`, also a KeyError, for a role that has none."""
        name = self.mapping.get(role)
        if name is None:
            known = tuple(map(str, self.mapping))
            raise PoolNotFoundError(
                f"no pool for role {role}; there are pools for {', '.join(known)}", role=role, known=known
            )
        if name not in self.resource_pool_dict:
            raise PoolNotFoundError(
                f"pool {name!r} of role {role} is not made yet: call create_resource_pool() first", role=role
            )
        return self.resource_pool_dict[name]

    def get_n_gpus(self) -> int:
        """Ranks with an accelerator, in all pools."""
        return sum(sum(counts) for name, counts in self.resource_pool_spec.items() if self._uses_gpu(name))

    def reserve(self) -> None:
        """Reserves the room of every pool, or of none. It stays until `remove`."""
        reserved: list[RayResourcePool] = []
        try:
            for pool in self.resource_pool_dict.values():
                if not pool.is_reserved:
                    reserved.append(pool)
                pool.places(self._strategy)
        except BaseException:
            for pool in reserved:
                pool.remove()
            raise

    def remove(self) -> None:
        """Gives the room of every pool back; actors that still run there are killed. Idempotent."""
        for pool in self.resource_pool_dict.values():
            pool.remove()

    @property
    def _strategy(self) -> str:
        return "STRICT_PACK" if self.bin_pack else "PACK"

    def _uses_gpu(self, name: str) -> bool:
        return self.use_gpu if isinstance(self.use_gpu, bool) else self.use_gpu.get(name, True)
