"""Several roles in one actor: the classes, and the groups that show one role each."""

from transferqueue.controller.colocated.colocated_worker import ColocatedWorker
from transferqueue.controller.colocated.create import (
    create_colocated_worker_cls,
    create_colocated_worker_cls_fused,
    create_colocated_worker_raw_cls,
)
from transferqueue.controller.colocated.errors import RoleNotFoundError
from transferqueue.controller.colocated.fused_worker import FusedWorker

__all__ = [
    "ColocatedWorker",
    "FusedWorker",
    "RoleNotFoundError",
    "create_colocated_worker_cls",
    "create_colocated_worker_cls_fused",
    "create_colocated_worker_raw_cls",
]
