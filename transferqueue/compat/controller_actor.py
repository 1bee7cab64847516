"""The named actor of the cluster's system: programs look it up and ask it for the configuration."""

from __future__ import annotations

from typing import Any

from transferqueue.compat.ray_system import CONTROLLER_NAME, NAMESPACE


class TransferQueueController:
    """Holds the configuration that the system was started with."""

    def __init__(self, session_name: str, config: Any) -> None:
        self._session_name = session_name
        self._config = config

    def get_config(self) -> Any:
        return self._config


def start_controller(session_name: str, config: Any) -> Any:
    """The handle of the started actor.

    Raises:
        ValueError: the cluster has one already.
    """
    import ray

    actor: Any = ray.remote(TransferQueueController)
    return actor.options(name=CONTROLLER_NAME, namespace=NAMESPACE, num_cpus=0).remote(session_name, config)
