"""A colocated worker whose roles are attributes of it and are called by name."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from transferqueue.controller.colocated.colocated_worker import ColocatedWorker, RoleArguments
from transferqueue.controller.colocated.errors import RoleNotFoundError


class FusedWorker(ColocatedWorker):
    """What `create_colocated_worker_cls_fused` makes is a subclass. ``self.actor`` is the worker of role "actor"."""

    is_fused_worker: ClassVar[bool] = True
    _fused_names: ClassVar[dict[str, str]] = {}

    def __init__(self, *args: Any, role_arguments: RoleArguments | None = None, **kwargs: Any) -> None:
        super().__init__(*args, role_arguments=role_arguments, **kwargs)
        for role, worker in self.worker_dict.items():
            setattr(self, role, worker)

    def _fuw_execute(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """``"role_fwmn_method"`` by the name that programs know; groups call ``role.method`` itself.

        Raises `RoleNotFoundError` for a role or method that there is not.
        """
        route = self._fused_names.get(method_name)
        if route is None:
            role, _, method = method_name.partition("_fwmn_")
            if role in self.raw_cls_dict:
                role_class = self.raw_cls_dict[role].__name__
                raise RoleNotFoundError(f"role {role!r} ({role_class}) has no method {method!r}", role=role)
            raise RoleNotFoundError.of(role, self.raw_cls_dict)
        return getattr(self, route)(*args, **kwargs)


class AsyncFusedWorker(FusedWorker):
    """For roles with coroutine methods, whose actor runs all methods in an event loop."""

    async def _fuw_execute(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        output = super()._fuw_execute(method_name, *args, **kwargs)
        return await output if inspect.isawaitable(output) else output
