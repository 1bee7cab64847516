"""This process's system: started or found, used by keys, closed."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import transferqueue
from transferqueue import cluster
from transferqueue import session as native_session
from transferqueue.calls import function_of
from transferqueue.compat import ray_system
from transferqueue.compat.client_base import session_name
from transferqueue.compat.transfer_queue.client import TransferQueueClient
from transferqueue.config import read_environment
from transferqueue.errors import SessionNotFoundError
from transferqueue.logs import get_logger
from transferqueue.storage.names import SessionPaths, new_session_name
from transferqueue.storage.session_dir import is_in_use

if TYPE_CHECKING:
    from omegaconf import DictConfig

P = ParamSpec("P")
R = TypeVar("R")
_log = get_logger("compat")

# Names of the surface: programs look at the first, and patch both.
_TQ_CONTROLLER: Any = None  # the handle of the actor, else the session's name; None: not initialised
_TQ_CLIENT: TransferQueueClient | None = None

_guard = threading.RLock()
_controller_pid: int | None = None  # a forked child has its parent's handle and must not kill by it
_closed_here: set[str] = set()  # sessions that this process left by close(): init() must not find them again


def init(conf: DictConfig | Mapping[str, Any] | None = None) -> DictConfig | Mapping[str, Any] | None:
    """Starts the cluster's system, or attaches to the one that runs.

    Args:
        conf: merged over the defaults in ``config.yaml``; ignored when there is a system already.

    Returns:
        The merged configuration of the system that was started; `conf` as it was given when there was one.

    Raises:
        ValueError: ``Could not find sampler X``. ImportError: Ray or OmegaConf is not installed.
        StorageFullError: the machine has too little room.
    """
    with _guard:
        if _attach_existing():
            return conf
        from transferqueue.compat.session_options import merged_config, native_options

        config = merged_config(conf)
        options = native_options(config)
        ray_system.connect()
        if _attach_existing():  # Ray was not initialised, and its cluster has a system
            return conf
        return _start(config, options)


def _start(config: DictConfig, options: Mapping[str, Any]) -> DictConfig:
    from transferqueue.compat.controller_actor import start_controller

    current = native_session.live_session()
    session = current or native_session.init(session=new_session_name(), **options)
    try:
        where = {"session": session.name, "node": ray_system.node_id()}
        config.controller.zmq_info = where
        config.backend.SimpleStorage.zmq_info = where
        if current is None and session.creator:
            _register(session.name)
        try:
            controller = start_controller(session.name, config)
        except ValueError:  # somebody else was quicker
            if current is None:
                session.close()
            if _attach_existing():
                return config
            raise
    except BaseException:
        if current is None:
            session.close()
        raise
    _take(controller, session.name)
    return config


def _register(name: str) -> None:
    """Lets the native face in this cluster find the session, unless it has one that lives."""
    registered = cluster.register_session(name)
    if registered != name and not is_in_use(SessionPaths.of(registered)):
        cluster.forget_session(registered)
        cluster.register_session(name)


def _attach_existing() -> bool:
    """Attaches this process to the running system. False when there is none."""
    if _TQ_CLIENT is not None and _TQ_CLIENT.usable:
        return True
    _forget()
    if ray_system.connect_to_named_cluster():
        controller = ray_system.find_controller()
        config = None if controller is None else ray_system.config_of(controller)
        if config is not None and _attach_to(controller, config.controller.zmq_info):
            return True
    name = read_environment()[0]
    return name is not None and name not in _closed_here and _attach(name, name)


def _attach_to(controller: Any, where: Any) -> bool:
    """The session that the controller names. False when it has ended.

    Raises:
        SessionNotFoundError: it is on another node.
    """
    name = session_name(where)
    if name is None:
        return False
    if _attach(controller, name):
        return True
    if where.get("node") not in (None, ray_system.node_id()):
        raise SessionNotFoundError(
            f"session {name!r} is on another node of the Ray cluster, and its rows cannot be reached from this one: "
            "place the processes that use it on the node that called init()",
            session=name,
        )
    # Whoever started it has died: the name must not stand in the way of the next one.
    ray_system.stop_controller(controller)
    return False


def _attach(controller: Any, name: str) -> bool:
    try:
        _take(controller, name)
    except SessionNotFoundError as error:
        if error.found is not None:
            raise  # this process is in another session
        return False
    return True


def _take(controller: Any, name: str) -> None:
    global _TQ_CLIENT, _TQ_CONTROLLER, _controller_pid
    _TQ_CLIENT = TransferQueueClient(f"TransferQueueClient_{os.getpid()}", name)
    _TQ_CONTROLLER, _controller_pid = controller, os.getpid()
    _closed_here.discard(name)


def _forget() -> None:
    """Lets go of a client whose session ended under it."""
    global _TQ_CLIENT, _TQ_CONTROLLER
    client, _TQ_CLIENT, _TQ_CONTROLLER = _TQ_CLIENT, None, None
    if client is not None:
        client.close()


def close() -> None:
    """Leaves the system; the process that started it takes it down. Idempotent; a later `init` starts an empty one."""
    with _guard:
        client, controller = _TQ_CLIENT, _TQ_CONTROLLER
        _forget()
        if controller is not None and not isinstance(controller, str) and _controller_pid == os.getpid():
            ray_system.stop_controller(controller)
        if client is not None:
            _closed_here.add(client.session)
            native_session.close()


def get_client() -> TransferQueueClient:
    """This process's client; it does not attach by itself.

    Raises:
        AssertionError: not initialised.
    """
    client = _TQ_CLIENT
    if client is None:
        raise AssertionError("Please initialize the TransferQueue first by calling `tq.init()`!")
    return client


def get_metrics_endpoint() -> str | None:
    """``host:port`` of the metrics, None without any; never raises."""
    try:
        endpoint: str | None = getattr(transferqueue, "get_metrics_endpoint", lambda: None)()
    except Exception as error:  # a program that only wants to show it must not fail
        _log.debug("no metrics endpoint: %s", error)
        return None
    return endpoint


def save_checkpoint(
    checkpoint_dir: str | os.PathLike[str], *, include_storage: bool = True, metadata: dict[str, Any] | None = None
) -> None:
    """Saves all rows with keys, tags, consumption and sampler state; the directory appears, or is replaced, as a whole.

    Args:
        checkpoint_dir: where to.
        include_storage: False is overridden: memory holds the only copy of the fields.
        metadata: JSON values of the program, ``user_metadata`` in the directory's ``metadata.json``.

    Raises:
        RuntimeError: not initialized. Others: see `transferqueue.save_checkpoint`.
    """
    _client_for_checkpoint().save_storage_checkpoint(checkpoint_dir, metadata=metadata)


def load_checkpoint(checkpoint_dir: str | os.PathLike[str]) -> None:
    """Puts the rows of a checkpoint in the place of all rows.

    Raises:
        RuntimeError: not initialized.
        FileNotFoundError: no such directory, or no ``metadata.json`` in it.
        Others: see `transferqueue.load_checkpoint`.
    """
    _client_for_checkpoint().load_storage_checkpoint(checkpoint_dir)


def _client_for_checkpoint() -> TransferQueueClient:
    if _TQ_CONTROLLER is None:
        raise RuntimeError("TransferQueue is not initialized. Call tq.init() first.")
    return _attached_client()


def _attached_client() -> TransferQueueClient:
    """The client, attached now when the process has none yet.

    Raises:
        AssertionError: there is no system.
    """
    client = _TQ_CLIENT
    if client is not None and client.usable:
        return client
    with _guard:
        if not _attach_existing() and not _attach_registered():
            raise AssertionError("TransferQueueController has not been initialized yet. Please call init() first.")
        assert _TQ_CLIENT is not None  # narrowing: attached
        return _TQ_CLIENT


def _attach_registered() -> bool:
    """This process's session of the native face; or the node's, when one process closed the controller and others go
    on."""
    live = native_session.live_session()
    name = cluster.find_session() if live is None else live.name
    return name is not None and name not in _closed_here and _attach(name, name)


async def _attached_client_in_loop() -> TransferQueueClient:
    client = _TQ_CLIENT
    if client is not None and client.usable:
        return client
    # Asks Ray and waits: not on the caller's event loop.
    return await asyncio.get_running_loop().run_in_executor(None, _attached_client)


def _on_client(method: Callable[Concatenate[Any, P], R]) -> Callable[P, R]:
    """A method of the client as a function of the module."""
    return function_of(method, __name__, _attached_client, _attached_client_in_loop)


kv_put = _on_client(TransferQueueClient.kv_put)
kv_batch_put = _on_client(TransferQueueClient.kv_batch_put)
kv_batch_get = _on_client(TransferQueueClient.kv_batch_get)
kv_batch_get_by_meta = _on_client(TransferQueueClient.kv_batch_get_by_meta)
kv_list = _on_client(TransferQueueClient.kv_list)
kv_clear = _on_client(TransferQueueClient.kv_clear)
async_kv_put = _on_client(TransferQueueClient.async_kv_put)
async_kv_batch_put = _on_client(TransferQueueClient.async_kv_batch_put)
async_kv_batch_get = _on_client(TransferQueueClient.async_kv_batch_get)
async_kv_batch_get_by_meta = _on_client(TransferQueueClient.async_kv_batch_get_by_meta)
async_kv_list = _on_client(TransferQueueClient.async_kv_list)
async_kv_clear = _on_client(TransferQueueClient.async_kv_clear)


def _after_fork_in_child() -> None:
    global _guard
    _guard = threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)
