"""A worker class with the arguments of its constructor, for a group to build on every rank."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from transferqueue.controller.actor_states import actor_table
from transferqueue.controller.class_with_init_args import ClassWithInitArgs
from transferqueue.controller.pools.bundle import device_resource
from transferqueue.workers.ray_runtime import require_ray

# Options of an actor that say how much it takes; other names that ask for an amount are custom resources.
_AMOUNTS = ("num_cpus", "num_gpus", "memory", "object_store_memory", "resources", "accelerator_type")


class RayClassWithInitArgs(ClassWithInitArgs):
    """A worker class for `RayWorkerGroup`. A group reads it and changes nothing of it, so it serves any number of them.

    Args:
        cls: the class, plain or after ``ray.remote``.
        args, kwargs: for the constructor, the same on every rank (`PerRank([...])` for one that differs).
    """

    def __init__(self, cls: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(cls, *args, **kwargs)
        self._options: dict[str, Any] = {}
        self._additional: dict[str, Any] = {}

    def update_options(self, options: Mapping[str, Any]) -> None:
        """Further options of the Ray actors, as ``.options(...)`` takes them; they override what the group asks for."""
        self._options.update(options)

    def set_additional_resource(self, additional_resource: Mapping[str, Any]) -> None:
        """What each actor takes besides its part of the pool, in place of what was set before: ``{"num_cpus": 2,
        "memory": 2**30}``, or amounts of custom resources, ``{"licence": 1}``. The bundles of the pool must have it.
        """
        self._additional = dict(additional_resource)

    def asked(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The options, those of ``@ray.remote(...)`` among them, and the additional resources. Copies."""
        return {**self._decorated(), **self._options}, dict(self._additional)

    def options_over(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The options of an actor for which a group asks `request`: those of ``@ray.remote(...)`` on the class, then
        the request, then `set_additional_resource`, then `update_options`, the later ones winning. A new dict.
        """
        options = {
            **self._decorated(),
            **request,
            **{name: value for name, value in self._additional.items() if name in _AMOUNTS},
        }
        custom = {name: value for name, value in self._additional.items() if name not in _AMOUNTS}
        if custom or "resources" in self._additional:
            given = (request.get("resources", {}), self._additional.get("resources", {}), custom)
            options["resources"] = {name: amount for part in given for name, amount in part.items()}
        return {**options, **self._options}

    def _decorated(self) -> dict[str, Any]:
        return dict(getattr(self.cls, "_default_options", None) or {}) if self.cls is not self.user_class else {}

    def __call__(
        self,
        placement_group: Any = None,
        placement_group_bundle_idx: int = -1,
        use_gpu: bool = True,
        num_gpus: float = 1,
        sharing_with: Any = None,
        device_name: str = "cuda",
    ) -> Any:
        """Starts one actor of the class, of no group, and returns its handle.

        Args:
            placement_group, placement_group_bundle_idx: where; None: where Ray likes.
            use_gpu, num_gpus: how much of an accelerator it takes.
            sharing_with: an actor of a `Worker` class. The new one runs on its node and sees its devices, of which it
                takes nothing; all arguments above are ignored.
            device_name: ``"cuda"``, ``"npu"``, ...: which accelerator `num_gpus` counts.
        """
        ray = require_ray("RayClassWithInitArgs")
        strategies = ray.util.scheduling_strategies
        options = self.options_over({})
        kwargs = dict(self.kwargs)
        if sharing_with is not None:
            devices = ray.get(sharing_with.get_cuda_visible_devices.remote())
            node_id = actor_table()[sharing_with._actor_id.hex()]["Address"]["NodeID"]
            options["scheduling_strategy"] = strategies.NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)
            if _takes(self.user_class, "cuda_visible_devices"):
                kwargs["cuda_visible_devices"] = devices
        else:
            if placement_group is not None:
                options["scheduling_strategy"] = strategies.PlacementGroupSchedulingStrategy(
                    placement_group=placement_group, placement_group_bundle_index=placement_group_bundle_idx
                )
            if use_gpu:
                _ask_for_device(options, device_name, num_gpus)
        return ray.remote(self.user_class).options(**options).remote(*self.args, **kwargs)


def _ask_for_device(options: dict[str, Any], device_name: str, amount: float) -> None:
    name = device_resource(device_name)
    if name == "GPU":
        options["num_gpus"] = amount
    else:
        options["resources"] = {**options.get("resources", {}), name: amount}


def _takes(user_class: type, name: str) -> bool:
    parameters = inspect.signature(user_class).parameters.values()
    return any(one.name == name or one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
