"""The nodes of a session, asked from any of its processes; and the end of the session on all of them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from transferqueue.errors import TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.storage.attachment import Attachment

_log = get_logger("nodes")
_LOOK_S = 0.05
_ANSWER_S = 5.0
_ENDED_WITHIN_S = 15.0


@dataclass(frozen=True)
class NodeStats:
    """One node of a session.

    Attributes:
        ordinal: its number in the session; `place_partition` and `coalesce` take it.
        node_id: Ray's id of the node, else what ``tq node`` called it.
        host, port: where its service is.
        session: its part of the session, as ``tq stats`` and ``tq ls`` show it.
        alive: False: it is lost, or left.
        here: whether this process is on it.
        partitions: those that it is home of.
        total_bytes, used_bytes: its store's size, and what committed blocks take of it; None while it is not known.
        rows: of those partitions and of payload that it keeps for others; None while not known.
        clients: processes that are attached to it, its service left out; None while not known.
        single_rows, single_partitions: with ``cluster.replicas=2``, of the partitions that it is home of: rows whose
            payload is on one node for now (None until the node has looked again after a change of who has what), and
            partitions that no other node follows; None without.
    """

    ordinal: int
    node_id: str
    host: str
    port: int
    session: str
    alive: bool
    here: bool
    partitions: tuple[str, ...] = ()
    total_bytes: int | None = None
    used_bytes: int | None = None
    rows: int | None = None
    clients: int | None = None
    single_rows: int | None = None
    single_partitions: int | None = None


def list_nodes(attachment: Attachment) -> list[NodeStats]:
    """By ordinal, lost ones included; none for a session of one machine.

    Raises:
        NodeUnreachableError: the directory does not answer.
    """
    cluster = attachment.cluster_now()
    if cluster is None:
        return []
    with _directory(attachment) as (directory, members):
        mirror = directory.mirror()
        homes: dict[int, list[str]] = {}
        alone: Counter[int] = Counter()
        for partition, role in mirror.roles.items():
            if role.home is not None:
                homes.setdefault(role.home, []).append(partition)
                alone[role.home] += role.standby is None
        facts = members.facts()
        return [
            NodeStats(
                ordinal=place.ordinal,
                node_id=place.node_id,
                host=place.host,
                port=place.port,
                session=place.session,
                alive=place.alive,
                here=place.ordinal == cluster.ordinal,
                partitions=tuple(sorted(homes.get(place.ordinal, ()))),
                # Not what the node said last: it may have become home of more since.
                single_partitions=alone[place.ordinal] if cluster.options.replicas > 1 else None,
                **{
                    name: facts.get(place.ordinal, {}).get(name)
                    for name in ("total_bytes", "used_bytes", "rows", "clients", "single_rows")
                },
            )
            for _, place in sorted(mirror.places.items())
        ]


def end_nodes(attachment: Attachment) -> None:
    """Ends the session on all nodes. Returns when they have, or do not answer; never raises: what is not reached ends
    when it hears of it."""
    from transferqueue.nodes.rpc_client import RpcClient

    cluster = attachment.cluster_now()
    if cluster is None:
        return
    try:
        with _directory(attachment) as (directory, members):
            members.end()
            places = [place for place in directory.nodes(fresh=True) if place.alive]

            def tell(host: str, port: int) -> None:
                client = RpcClient(host, port, token=cluster.token, tls=cluster.tls)
                try:
                    client.call("node.end", {}, until_s=time.monotonic() + _ANSWER_S)
                except (TransferQueueError, OSError) as error:
                    _log.info("the node at %s:%d does not answer, it hears of the end later: %s", host, port, error)
                finally:
                    client.close()

            tellers = [threading.Thread(target=tell, args=place.endpoint, daemon=True) for place in places]
            for teller in tellers:
                teller.start()
            for teller in tellers:
                teller.join()
            until_s = time.monotonic() + _ENDED_WITHIN_S
            while time.monotonic() < until_s:
                if not any(place.alive for place in directory.nodes(until_s=until_s, fresh=True)):
                    break
                time.sleep(_LOOK_S)
    except (TransferQueueError, OSError, ValueError) as error:
        _log.warning("session %r: not all nodes could be told that it ends: %s", cluster.cluster, error)


@contextmanager
def _directory(attachment: Attachment) -> Iterator[tuple[Any, Any]]:
    """(DirectoryClient, MemberClient), for a few calls."""
    from transferqueue.node_service.members import MemberClient
    from transferqueue.nodes.directory.client import DirectoryClient

    cluster = attachment.cluster_now()
    assert cluster is not None  # narrowing: the callers looked
    at = (cluster.directory_host, cluster.directory_port)
    directory = DirectoryClient(*at, token=cluster.token, tls=cluster.tls)
    members = MemberClient(lambda: at, token=cluster.token, tls=cluster.tls)
    try:
        yield directory, members
    finally:
        directory.close()
        members.close()
