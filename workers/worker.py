"""The base class of what runs in a rank."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from transferqueue.workers.devices import own_device, set_device, unify_visible_devices, visible_devices_variable
from transferqueue.workers.dispatch_modes import Dispatch
from transferqueue.workers.execute import Execute
from transferqueue.workers.meshes import MeshMember
from transferqueue.workers.node_helper import WorkerHelper
from transferqueue.workers.rank_nodes import RankNodes
from transferqueue.workers.ranks import (
    DISABLE_WORKER_INIT,
    ENVIRONMENT_KEYS,
    LOCAL_RANK,
    RANK,
    WORLD_SIZE,
    RankInfo,
)
from transferqueue.workers.ray_runtime import accelerator_ids
from transferqueue.workers.register import register

_NUMBERS = frozenset(key for key in ENVIRONMENT_KEYS if key.endswith(("RANK", "WORLD_SIZE")))


class Worker(WorkerHelper, MeshMember):
    """One rank of a worker group: knows its rank, its device, and which shard of each mesh it works on.

    The constructor brings the device variables into one form (see `transferqueue.workers.devices`), reads the
    environment that the group set into ``self._rank``, ``self._world_size``, ``self._master_addr`` and so on, one for
    each of `env_keys`, and writes them back, defaults included, for libraries that read the environment. With
    ``DISABLE_WORKER_INIT=1`` it only reads. It never joins a process group.

    A subclass need not call ``super().__init__()``: rank, sizes, addresses and meshes are read when first asked for.
    Where Ray leaves all devices visible, its local rank and device are then its own affair.

    Args:
        cuda_visible_devices: sets the variable that restricts the devices of this process.

    Raises:
        DeviceVisibilityError: device variables that contradict each other.
        ValueError: a variable of the contract that is no number.
    """

    fused_worker_attr_name = "fused_worker_dict"

    def __init__(self, cuda_visible_devices: str | None = None) -> None:
        disabled = os.environ.get(DISABLE_WORKER_INIT, "").lower() not in ("", "0", "false")
        in_group = RANK in os.environ or WORLD_SIZE in os.environ
        variable = visible_devices_variable(os.environ)
        if cuda_visible_devices is not None and not disabled:
            os.environ[variable] = cuda_visible_devices
        if not disabled:
            self._setup_env_cuda_visible_devices()
        self.__dict__.pop("_rank_info", None)
        keys = type(self).env_keys()
        store = {**self.rank_info.to_environment(), **{key: os.environ[key] for key in keys if key in os.environ}}
        if cuda_visible_devices is not None:
            store[variable] = cuda_visible_devices
        self._configure_with_store(store, write_back=in_group and not disabled)
        self.fused_worker_dict: dict[str, Any] = {}

    @property
    def rank_info(self) -> RankInfo:
        """Rank, sizes, master address and nodes. Read from the environment once and kept."""
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
        """This rank's number among the ranks of the group on its node. Where Ray leaves all devices visible: the
        number of its device among them."""
        return self.rank_info.local_rank

    @property
    def local_world_size(self) -> int:
        """How many ranks of the group are on this node."""
        return self.rank_info.local_world_size

    @property
    def rank_nodes(self) -> RankNodes:
        """Rank -> node address and id, for all ranks of the group; empty outside one."""
        return self.rank_info.nodes

    @property
    def device_index(self) -> int | None:
        """The number of this rank's accelerator among those that it sees: 0 where Ray shows it only its own. None
        without one."""
        device = own_device(os.environ, accelerator_ids())
        return None if device is None else device.index

    @classmethod
    def env_keys(cls) -> list[str]:
        """The environment variables that a group sets for its ranks, then the one that restricts the devices."""
        return [*ENVIRONMENT_KEYS, visible_devices_variable(os.environ)]

    def get_master_addr_port(self) -> tuple[str | None, str | None]:
        """Where the ranks meet, for ``torch.distributed``'s ``env://``."""
        return self.rank_info.master_addr, self.rank_info.master_port

    def get_cuda_visible_devices(self) -> str:
        """The devices that this process sees, as its environment says, or ``"not set"``."""
        return os.environ.get(visible_devices_variable(os.environ), "not set")

    def get_fused_worker_by_name(self, worker_name: str) -> Any:
        """Another role in the same process, None where there is none of that name."""
        return self.__dict__.get(self.fused_worker_attr_name, {}).get(worker_name)

    def print_rank0(self, *args: object, **kwargs: object) -> None:
        """`print`, on rank 0 only."""
        if self.rank == 0:
            print(*args, **kwargs)  # type: ignore[call-overload]

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO_WITH_FUNC)
    def execute_with_func_generator(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs ``func(worker, *args, **kwargs)`` on every rank: every rank gets the function and its share of the
        batches."""
        return func(self, *args, **kwargs)

    @register(dispatch_mode=Dispatch.ALL_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def execute_func_rank_zero(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs ``func(*args, **kwargs)`` on rank 0."""
        return func(*args, **kwargs)

    def _setup_env_cuda_visible_devices(self) -> None:
        """One form of the device variables; where Ray leaves all devices visible, LOCAL_RANK and the current device
        are those that it assigned."""
        unify_visible_devices(os.environ)
        device = own_device(os.environ, accelerator_ids())
        if device is not None and not device.alone:
            os.environ[LOCAL_RANK] = str(device.index)
            set_device(device.index)

    def _configure_with_store(self, store: Mapping[str, Any], write_back: bool = True) -> None:
        """``self._<key>`` for each of `env_keys`, in lower case, None where the store has none; and the environment."""
        for key in type(self).env_keys():
            value = store.get(key)
            self.__dict__[f"_{key.lower()}"] = int(value) if value is not None and key in _NUMBERS else value
            if value is not None and write_back:
                os.environ[key] = str(value)
