"""What the compatible face asks of Ray: which system its cluster runs, by the name of an actor."""

from __future__ import annotations

import os
from typing import Any

from transferqueue import cluster
from transferqueue.errors import TransferTimeoutError
from transferqueue.logs import get_logger

_log = get_logger("compat")

CONTROLLER_NAME = "TransferQueueController"
NAMESPACE = "transfer_queue"
_ANSWER_TIMEOUT_S = 60.0


def connect() -> None:
    """Makes sure that Ray is initialised in this process, as the first use of Ray's own calls does.

    Raises:
        ImportError: Ray is not installed; says what to install.
    """
    if cluster.ray_is_running():
        return
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            "init() of the compatible face runs in a Ray cluster, and Ray is not installed: "
            "pip install 'transferqueue-shm[compat]', or use the native face (import transferqueue as tq)"
        ) from error
    ray.init()


def connect_to_named_cluster() -> bool:
    """Whether Ray is initialised now: it is when it was, or when the environment names a cluster (RAY_ADDRESS)."""
    if not cluster.ray_is_running() and os.environ.get("RAY_ADDRESS"):
        connect()
    return cluster.ray_is_running()


def node_id() -> str:
    """Ray's id of the node of this process."""
    import ray

    return str(ray.get_runtime_context().get_node_id())


def find_controller() -> Any:
    """The handle of the cluster's controller actor; None when there is none."""
    import ray

    try:
        return ray.get_actor(CONTROLLER_NAME, namespace=NAMESPACE)
    except ValueError:
        return None


def config_of(controller: Any) -> Any:
    """The configuration that the controller was started with; None when it is dead.

    Raises:
        TransferTimeoutError: it does not answer.
    """
    import ray.exceptions

    try:
        return ray.get(controller.get_config.remote(), timeout=_ANSWER_TIMEOUT_S)
    except ray.exceptions.GetTimeoutError as error:
        raise TransferTimeoutError(
            f"the actor {CONTROLLER_NAME} did not give its configuration within {_ANSWER_TIMEOUT_S} s",
            timeout_s=_ANSWER_TIMEOUT_S,
            missing=CONTROLLER_NAME,
        ) from error
    except ray.exceptions.RayActorError as error:
        _log.debug("the controller is dead: %s", error)
        return None


def stop_controller(controller: Any) -> None:
    """Kills the actor; quiet when it or the cluster is gone."""
    import ray.exceptions

    if not cluster.ray_is_running():
        return
    try:
        ray.kill(controller)
    except (ray.exceptions.RayError, ValueError, RuntimeError) as error:
        _log.debug("the controller could not be killed: %s", error)
