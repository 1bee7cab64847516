"""Classes whose ranks hold several roles, out of the classes of the roles."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from transferqueue.controller.class_with_init_args import ClassWithInitArgs
from transferqueue.controller.colocated.colocated_worker import ColocatedWorker, RoleArguments
from transferqueue.controller.colocated.fused_worker import AsyncFusedWorker, FusedWorker
from transferqueue.controller.colocated.role_routes import fused_names, methods_of, prefixed, routes
from transferqueue.controller.ray_class import RayClassWithInitArgs


def create_colocated_worker_cls(class_dict: Mapping[str, ClassWithInitArgs]) -> RayClassWithInitArgs:
    """A class for a `RayWorkerGroup` whose ranks each hold one worker of every role, in one process.

    ``group.spawn(roles)`` gives a group per role. On the group itself, and on its actors, the registered methods of the
    roles are called ``role_method``.

    Args:
        class_dict: role -> class and arguments of its constructor. Options of the actors (``update_options``) are taken
            from all roles.

    Raises `TypeError` for a role that is no `ClassWithInitArgs`, `ValueError` for no roles, names that cannot be one,
    and options that two roles want to be different.
    """
    classes = _role_classes(class_dict)
    name = "_".join(["WorkerDict", *classes])
    namespace = {"raw_cls_dict": classes, **prefixed(classes), **routes(classes)}
    return _with_arguments(type(name, (ColocatedWorker,), namespace), class_dict)


def create_colocated_worker_cls_fused(class_dict: Mapping[str, ClassWithInitArgs]) -> RayClassWithInitArgs:
    """As `create_colocated_worker_cls`; the roles are attributes of the `FusedWorker` that holds them.

    ``group.spawn(roles)`` gives a group per role; after ``group.fuse(roles)`` those are attributes of the group.
    """
    made = _with_arguments(_fused_class(_role_classes(class_dict)), class_dict)
    made.fused_worker_used = True
    return made


def create_colocated_worker_raw_cls(class_dict: Mapping[str, ClassWithInitArgs]) -> type[FusedWorker]:
    """The class itself, to be built in any process: ``FusedWorker_actor_critic()`` builds the roles with their
    arguments. Raises as `create_colocated_worker_cls`."""
    classes = _role_classes(class_dict)
    arguments = {role: (one.args, one.kwargs) for role, one in class_dict.items()}
    return _fused_class(classes, default_role_arguments=arguments)


def _fused_class(classes: Mapping[str, type], **namespace: Any) -> type[FusedWorker]:
    for role in classes:
        if hasattr(FusedWorker, role) or role in ("cls_names", "worker_dict", "fused_worker_dict"):
            raise ValueError(f"a role cannot be named {role!r}: fused workers have a member of that name; rename it")
    functions = [function for role_class in classes.values() for _, function in methods_of(role_class)]
    base = AsyncFusedWorker if any(map(inspect.iscoroutinefunction, functions)) else FusedWorker
    namespace = {"raw_cls_dict": classes, "_fused_names": fused_names(classes), **namespace, **routes(classes)}
    made: Any = type("_".join(["FusedWorker", *classes]), (base,), namespace)
    return made  # type: ignore[no-any-return]


def _role_classes(class_dict: Mapping[str, ClassWithInitArgs]) -> dict[str, type]:
    if not class_dict:
        raise ValueError("no roles: name at least one, {'actor': RayClassWithInitArgs(ActorWorker)}")
    for role, one in class_dict.items():
        if not isinstance(one, ClassWithInitArgs):
            raise TypeError(f"role {role!r} is a RayClassWithInitArgs(cls, ...), got {one!r}")
        if not isinstance(role, str) or not role or role.startswith("_"):
            raise ValueError(f"a role is named by a string that does not start with an underscore, got {role!r}")
    return {role: getattr(one.cls, "__ray_actor_class__", one.cls) for role, one in class_dict.items()}


def _with_arguments(worker_class: type, class_dict: Mapping[str, ClassWithInitArgs]) -> RayClassWithInitArgs:
    # Beside the class and not in it: what travels with a class is bounded, and arguments may hold weights.
    arguments: RoleArguments = {role: (one.args, one.kwargs) for role, one in class_dict.items()}
    made = RayClassWithInitArgs(worker_class, role_arguments=arguments)
    asked = {role: one.asked() for role, one in class_dict.items() if isinstance(one, RayClassWithInitArgs)}
    made.update_options(_merged("option", {role: options for role, (options, _) in asked.items()}))
    made.set_additional_resource(_merged("resource", {role: additional for role, (_, additional) in asked.items()}))
    return made


def _merged(kind: str, asked: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    asked_by: dict[str, str] = {}
    for role, wanted in asked.items():
        for name, value in wanted.items():
            if name in merged and merged[name] != value:
                raise ValueError(
                    f"roles {asked_by[name]!r} and {role!r} are one actor and want its {kind} {name!r} to be "
                    f"{merged[name]!r} and {value!r}: give both the same"
                )
            merged[name] = value
            asked_by[name] = role
    return merged
