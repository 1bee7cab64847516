"""``cluster.json`` in the directory of a node's session: which cluster the node belongs to, and where its services are.

Written by the node's agent: before the session can be joined, so that nobody takes it for the session of one machine,
and anew whenever an endpoint moves, or nodes come or are lost. Everybody who attaches reads it, so it holds the token;
like all of the session it is this user's alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import msgspec

from transferqueue.cluster_config import ClusterConfig
from transferqueue.errors import CorruptSegmentError
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.tls import TlsFiles
from transferqueue.storage.checked_json import check, write_checked
from transferqueue.storage.names import SessionPaths
from transferqueue.storage.private_files import read_private, write_private

FORMAT_VERSION = 3


@dataclass(frozen=True)
class ClusterOptions:
    """What all nodes do alike: see the keys ``cluster.*``."""

    streams: int = ClusterConfig.streams
    chunk_bytes: int = ClusterConfig.chunk_bytes
    lost_after_s: float = ClusterConfig.lost_after_s
    replicas: int = ClusterConfig.replicas
    call_s: float = ClusterConfig.call_s
    transport: str = ClusterConfig.transport

    @classmethod
    def of(cls, config: ClusterConfig) -> ClusterOptions:
        """Those of a configuration."""
        return cls(
            streams=config.streams,
            chunk_bytes=config.chunk_bytes,
            lost_after_s=config.lost_after_s,
            replicas=config.replicas,
            call_s=config.call_s,
            transport=config.transport,
        )


@dataclass(frozen=True)
class ClusterFile:
    """What the file says.

    Attributes:
        cluster: name of the session that all nodes share.
        ordinal: of this node; it gives out global indexes from ``ordinal << 50`` on.
        node_id: Ray's id of the node; without Ray the name that ``tq node`` gave it.
        host, port: of this node's agent; port 0 until it serves for the first time.
        directory_host, directory_port: of the directory; port 0 like that.
        token: every call between nodes carries it.
        incarnation: how often the node's agent joined; 0: it has not yet, and nobody finds what is put here.
        term: of the head: how often another node was made it.
        nodes: all nodes as the directory said them last: where others are looked for while it is away.
        tls: None: no TLS.
    """

    cluster: str
    ordinal: int
    node_id: str
    host: str
    port: int
    directory_host: str
    directory_port: int
    token: str
    incarnation: int = 0
    term: int = 0
    nodes: tuple[NodePlace, ...] = ()
    tls: TlsFiles | None = None
    options: ClusterOptions = ClusterOptions()

    @property
    def place(self) -> NodePlace:
        """Of this node, as its errors name it."""
        return NodePlace(self.ordinal, self.host, self.port, f"{self.cluster}.n{self.ordinal}", self.node_id)

    def __repr__(self) -> str:
        # Without the token: it must not reach a log.
        return f"ClusterFile({self.cluster!r}, node {self.ordinal} at {self.host}:{self.port})"


def read_cluster_file(paths: SessionPaths) -> ClusterFile | None:
    """None: a session of one machine.

    Raises:
        CorruptSegmentError: it is damaged, or of another version.
        UntrustedFileError: not this user's alone.
    """
    path = paths.cluster_file
    try:
        values = json.loads(read_private(path))
        version = values["format"]
        if version != FORMAT_VERSION:
            raise ValueError(f"its format is {version}, ours is {FORMAT_VERSION}")
        check(values)
        del values["format"]
        return msgspec.convert(values, ClusterFile, strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise CorruptSegmentError(f"{path} is no description of a cluster's node: {error}", path=path) from error


def write_cluster_file(paths: SessionPaths, file: ClusterFile) -> None:
    """Replaces it in one step."""
    write_private(paths.cluster_file, write_checked({"format": FORMAT_VERSION, **asdict(file)}))
