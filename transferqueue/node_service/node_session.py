"""A node's part of the session: found again by its agent with all rows, or made."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from transferqueue.config import Config, build_config, process_keys
from transferqueue.errors import SessionNotFoundError, TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.node_service.agent_spec import AgentSpec, tls_files
from transferqueue.nodes.cluster_file import ClusterFile, write_cluster_file
from transferqueue.nodes.local_sessions import LocalSession, local_sessions
from transferqueue.storage.attachment import Attachment, attach
from transferqueue.storage.creation import create_session
from transferqueue.storage.names import SessionPaths, node_session_name
from transferqueue.storage.session_dir import remove_if_dead
from transferqueue.storage.session_lock import SessionLock

_log = get_logger("nodes")
# Global indexes of a node begin at its ordinal times this; half of that is for the names of blocks.
ROWS_OF_A_NODE = 1 << 50
MOST_NODES = 1 << 12
_LOCK_WAIT_S = 5.0
_LOOK_S = 0.05


@dataclass(frozen=True)
class NodeSession:
    """Held by the node's agent.

    Attributes:
        attachment: to it.
        config: of the session.
        lock: says that an agent serves the node; nobody else may meanwhile.
        file: what ``cluster.json`` is to say, without the ports, which are not known yet.
    """

    attachment: Attachment
    config: Config
    lock: SessionLock
    file: ClusterFile


def open_node_session(spec: AgentSpec, reserve: Callable[[], int]) -> NodeSession:
    """The session of `spec`'s node: the one that its last agent left, else a new one.

    Args:
        reserve: gives an ordinal that no node of the cluster ever had.

    Raises:
        TransferQueueError: another agent serves the node, or no ordinal is left.
        StorageFullError: the machine has too little room.
    """
    for found in reversed(local_sessions(spec.cluster, node_id=spec.node_id)):
        if found.file.token == spec.token:
            adopted = _adopt(spec, found)
            if adopted is not None:
                return adopted
    _remove_leftovers(spec)
    while True:
        ordinal = reserve()
        if not 0 <= ordinal < MOST_NODES:
            raise TransferQueueError(
                f"cluster {spec.cluster!r} has had {MOST_NODES} nodes, which is as many as it can name: start a new one"
            )
        made = _create(spec, ordinal)
        if made is not None:
            return made
        _log.warning("%s is taken on this machine; its number is skipped", node_session_name(spec.cluster, ordinal))


def last_file(spec: AgentSpec) -> ClusterFile | None:
    """What the last agent of `spec`'s node said; None: nothing of it is left on this machine."""
    own = [found for found in local_sessions(spec.cluster, node_id=spec.node_id) if found.file.token == spec.token]
    return own[-1].file if own else None


def _adopt(spec: AgentSpec, found: LocalSession) -> NodeSession | None:
    """None: it ended meanwhile."""
    try:
        attachment = attach(found.paths.name)
    except SessionNotFoundError:
        return None
    try:
        lock = _agent_lock(found.paths)
        own = set(process_keys())
        base = build_config(attachment.description.config)
        config = build_config({key: value for key, value in spec.given.items() if key in own}, base)
        file = ClusterFile(
            cluster=spec.cluster,
            ordinal=found.file.ordinal,
            node_id=spec.node_id,
            host=spec.host,
            port=found.file.port,
            directory_host=found.file.directory_host,
            directory_port=found.file.directory_port,
            token=spec.token,
            incarnation=found.file.incarnation,
            term=found.file.term,
            nodes=found.file.nodes,
            tls=found.file.tls,
            options=found.file.options,
        )
        return NodeSession(attachment, config, lock, file)
    except BaseException:
        attachment.detach()
        raise


def _agent_lock(paths: SessionPaths) -> SessionLock:
    until_s = time.monotonic() + _LOCK_WAIT_S
    while True:
        lock = SessionLock(paths.agent_lock, create=True)
        if lock.try_exclusive():
            return lock
        lock.close()
        if time.monotonic() > until_s:
            raise TransferQueueError(
                f"session {paths.name!r} has an agent already: each node has one. Another node on this machine needs "
                "another name (tq node --name)"
            )
        time.sleep(_LOOK_S)  # a keeper looks, or the last agent is on its way out


def _create(spec: AgentSpec, ordinal: int) -> NodeSession | None:
    """None: the name is taken."""
    config = build_config(spec.given)
    file = ClusterFile(
        cluster=spec.cluster,
        ordinal=ordinal,
        node_id=spec.node_id,
        host=spec.host,
        port=0,
        directory_host="",
        directory_port=0,
        token=spec.token,
        tls=tls_files(config.cluster),
        options=spec.options,
    )
    locks: list[SessionLock] = []

    def prepare(paths: SessionPaths) -> None:
        locks.append(_agent_lock(paths))
        write_cluster_file(paths, file)

    try:
        attachment = create_session(
            node_session_name(spec.cluster, ordinal),
            config,
            spec.sources,
            first_row=ordinal * ROWS_OF_A_NODE,
            prepare=prepare,
        )
    except BaseException:
        for lock in locks:
            lock.close()
        raise
    return None if attachment is None else NodeSession(attachment, config, locks[0], file)


def _remove_leftovers(spec: AgentSpec) -> None:
    """Of clusters of the same name that were killed: nobody but a keeper holds them."""
    for found in local_sessions(spec.cluster):
        if found.file.token == spec.token or remove_if_dead(found.paths):
            continue
        try:
            lock = SessionLock(found.paths.agent_lock)
        except OSError:
            continue
        try:
            if not lock.try_exclusive():
                continue
            attachment = attach(found.paths.name)
        except TransferQueueError:
            continue
        finally:
            lock.close()
        others = [client for client in attachment.store.clients() if client["owner"] != attachment.store.owner]
        if any(client["alive"] for client in others):
            attachment.detach()
        else:
            _log.info("session %r of an earlier cluster of that name is removed", found.paths.name)
            attachment.end()
