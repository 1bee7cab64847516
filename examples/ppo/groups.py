"""The worker groups of the example: a group of processes for what shares them, and a view of it for each role."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from examples.ppo.config import PpoConfig
from examples.ppo.roles import classes_of, pools_of, process_of
from transferqueue.controller import (
    ClassWithInitArgs,
    RayWorkerGroup,
    create_colocated_worker_cls,
    create_colocated_worker_cls_fused,
)


class Groups(dict[str, Any]):
    """The group of each role, by the role's short name.

    `processes` are the groups that started something, `layout` says so with a line for each.
    """

    def __init__(self, config: PpoConfig) -> None:
        """Starts every rank; all that started is taken down again when one does not."""
        super().__init__()
        self.processes: list[RayWorkerGroup] = []
        self.layout: list[str] = []
        pools = pools_of(config)
        pools.create_resource_pool()
        gathered: dict[tuple[str, str], dict[str, ClassWithInitArgs]] = defaultdict(dict)
        for role, worker_class in classes_of(config).items():
            gathered[pools.mapping[role], process_of(role)][str(role)] = worker_class
        colocated = create_colocated_worker_cls_fused if config.trainer.fused else create_colocated_worker_cls
        try:
            for (pool, _), classes in gathered.items():
                group = RayWorkerGroup(pools.resource_pool_dict[pool], colocated(classes))
                self.processes.append(group)
                self.layout.append(f"{pool}: {' + '.join(classes)} in {group.world_size} processes")
                self.update(group.spawn(classes))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends all ranks. The views of the roles end nothing themselves."""
        for group in self.processes:
            group.close()
