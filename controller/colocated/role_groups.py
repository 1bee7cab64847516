"""Groups that show one role each of a group whose ranks hold several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from transferqueue.controller.colocated.colocated_worker import ColocatedWorker
from transferqueue.controller.colocated.errors import RoleNotFoundError
from transferqueue.controller.colocated.fused_worker import FusedWorker
from transferqueue.controller.colocated.role_routes import RoleRoute, role_and_method

if TYPE_CHECKING:
    from typing_extensions import Self


class RoleGroups:
    """What a `WorkerGroup` can do when its class was made by `create_colocated_worker_cls` or its fused form."""

    _user_class: type

    if TYPE_CHECKING:

        def view(self, user_class: type, name_on_rank: Any) -> Self: ...

    @property
    def fused_worker_used(self) -> bool:
        """Whether the ranks are `FusedWorker`s."""
        return issubclass(self._user_class, FusedWorker)

    def spawn(self, prefix_set: Iterable[str]) -> dict[str, Self]:
        """A group for each of these roles, over the same ranks: no process starts, and closing it ends none.

        Each has the methods of its role under their own names, and meshes of its own. A rank that dies, during a call
        on whichever of them, makes all of them dead.

        Raises `RoleNotFoundError` for a role that the class was not made of.
        """
        return {role: self._role_group(role) for role in prefix_set}

    def spawn_fused(self, prefix_set: Iterable[str]) -> dict[str, Self]:
        """The same as `spawn`, which is the same for both kinds of colocated classes."""
        return self.spawn(prefix_set)

    def fuse(self, prefix_set: Iterable[str]) -> None:
        """Makes the group of each role an attribute of this one: ``group.actor.update(meta)``.

        Raises as `spawn`, and `ValueError` for a role that has the name of another member.
        """
        fused: dict[str, Any] = self.__dict__.setdefault("wg_dict", {})
        new = {role: group for role, group in self.spawn(prefix_set).items() if role not in fused}
        for role in new:
            if hasattr(type(self), role) or role in self.__dict__ or role in self.__dict__["_group_methods"]:
                raise ValueError(f"role {role!r} cannot be an attribute: the group has a member of that name; spawn it")
        fused.update(new)
        self.__dict__.update(new)

    def _role_classes(self) -> Mapping[str, type]:
        return self._user_class.raw_cls_dict if issubclass(self._user_class, ColocatedWorker) else {}

    def _role_group(self, role: str) -> Self:
        classes = self._role_classes()
        if role not in classes:
            raise RoleNotFoundError.of(role, classes)
        return self.view(classes[role], RoleRoute(role))

    def _role_method(self, name: str) -> Any:
        """The method of a role by its prefixed name, on a group of that role, whose meshes it is about. None: there is
        no role method of that name."""
        found = role_and_method(getattr(self._user_class, name, None))
        if found is None:
            return None
        role, method = found
        return getattr(self._role_group(role), method)
