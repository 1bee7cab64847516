"""A process's connections to the other nodes of its cluster, from what its session's cluster file says."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from transferqueue.nodes.followed_directory import FollowedDirectory
from transferqueue.nodes.link import NodeLink
from transferqueue.nodes.node_clients import NodeClients
from transferqueue.nodes.node_sources import NodeSources
from transferqueue.nodes.transport.flight import CHUNK_NBYTES, FlightTransport
from transferqueue.nodes.transport.sockets import SocketTransport

if TYPE_CHECKING:
    from transferqueue.nodes.cluster_file import ClusterFile


def link_of(read: Callable[[], ClusterFile]) -> NodeLink:
    """The calls. Nothing is connected before it is needed.

    Args:
        read: the cluster file as it is now; read again when the directory does not answer.
    """
    file = read()
    directory = FollowedDirectory(read)
    clients = NodeClients(directory, token=file.token, tls=file.tls)
    options = file.options
    return NodeLink(
        file.ordinal,
        file.cluster,
        clients,
        directory,
        call_s=options.call_s,
        replicas=options.replicas,
        here=lambda: str(read().place),
    )


def sources_of(link: NodeLink, file: ClusterFile) -> NodeSources:
    """The payload."""
    options = file.options
    flight = FlightTransport(
        token=file.token,
        tls=file.tls,
        streams=options.streams,
        chunk_nbytes=min(options.chunk_bytes, CHUNK_NBYTES),
        where=link.place_now,
    )
    if options.transport != "sockets" or file.tls is not None:
        return NodeSources(link, flight)
    # A stream keeps a core of the sender and one of the receiver busy; more streams than that take from each other.
    streams = min(options.streams, max(1, len(os.sched_getaffinity(0)) // 2))
    sockets = SocketTransport(flight, token=file.token, streams=streams, chunk_nbytes=options.chunk_bytes)
    link.look = sockets.ask
    return NodeSources(link, sockets)
