"""The keys ``cluster.*``: a session that spans several nodes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from transferqueue.config_values import as_count, as_flag, as_host, as_optional_flag, config_key
from transferqueue.sizes import format_size, parse_size

TRANSPORTS = ("sockets", "flight")
# Below that a busy machine is taken for a dead one.
_SHORTEST_LOST_AFTER_S = 1.0
_CHUNK_BYTES = (64 << 10, 1 << 30)


def _optional_host(value: Any, name: str) -> str | None:
    return None if value is None or value == "" else as_host(value, name)


def _ports(value: Any, name: str) -> str | None:
    """``"42000"`` or ``"42000-42010"``; None for any free one."""
    if value is None or value == "" or value == 0 or value == "0":
        return None
    first, dash, last = str(value).partition("-")
    low = as_count(first, name)
    high = as_count(last, name) if dash else low
    if not 0 < low <= high <= 65535:
        raise ValueError(f"{name} must be a TCP port or a range such as '42000-42010', not {value!r}")
    return f"{low}-{high}" if dash else str(low)


def _resource(value: Any, name: str) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise ValueError(f"{name} must be the name of a Ray resource, not {value!r}")
    return value


def _file(value: Any, name: str) -> str | None:
    if value is None or value == "":
        return None
    path: str = os.path.abspath(os.path.expanduser(os.fspath(value)))
    if not os.path.isfile(path):
        raise ValueError(f"{name}: {path!r} is not a file")
    return path


def _streams(value: Any, name: str) -> int:
    streams = as_count(value, name)
    if not 1 <= streams <= 64:
        raise ValueError(f"{name} must be 1 to 64, not {value!r}")
    return streams


def as_chunk_bytes(value: Any, name: str) -> int:
    nbytes = parse_size(value, name)
    low, high = _CHUNK_BYTES
    if not low <= nbytes <= high:
        raise ValueError(f"{name} must be {format_size(low)} to {format_size(high)}, not {value!r}")
    return nbytes


def _lost_after(value: Any, name: str) -> float:
    seconds = _positive_s(value, name)
    if seconds < _SHORTEST_LOST_AFTER_S:
        raise ValueError(f"{name} must be {_SHORTEST_LOST_AFTER_S:g} s or more, not {value!r}")
    return seconds


def _positive_s(value: Any, name: str) -> float:
    seconds = float(value)
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{name} must be seconds above 0, not {value!r}")
    return seconds


def _replicas(value: Any, name: str) -> int:
    replicas = as_count(value, name)
    if replicas not in (1, 2):
        raise ValueError(f"{name} must be 1 or 2, not {value!r}")
    return replicas


def _transport(value: Any, name: str) -> str:
    if value not in TRANSPORTS:
        raise ValueError(f"{name} must be one of {', '.join(TRANSPORTS)}; not {value!r}")
    return str(value)


@dataclass(frozen=True)
class ClusterConfig:
    """A session on several nodes. `Config` says what its keys mean."""

    enabled: bool | None = config_key(
        as_optional_flag,
        None,
        "whether init() in a Ray cluster makes a session that spans its nodes, those that join later, too; none: if "
        "the cluster has several nodes by then; false: this node only",
    )
    resource: str | None = config_key(
        _resource,
        None,
        "a custom Ray resource: only nodes that have some of it, and the one that calls init(), belong to the session",
    )
    host: str | None = config_key(
        _optional_host,
        None,
        "address that a node's service listens on and others reach it by; none: the node's address in Ray. Set it in "
        "the environment of each node before Ray starts there: given to init() it is the same for all",
    )
    port: str | None = config_key(
        _ports,
        None,
        "TCP ports of a node's service, '42000-42010': it takes one for calls and one for rows (where there is one "
        "alone rows go over that, by Flight); none: any free ones",
    )
    tls_cert: str | None = config_key(
        _file, None, "file with the PEM certificate that nodes show each other, at the same path on all; none: no TLS"
    )
    tls_key: str | None = config_key(_file, None, "file with the key of cluster.tls_cert")
    tls_ca: str | None = config_key(
        _file, None, "file with the certificates that nodes accept; none: cluster.tls_cert itself"
    )
    tls_verify_clients: bool = config_key(
        as_flag,
        False,
        "whoever calls a node shows a certificate that cluster.tls_ca accepts, too (nodes and their processes show "
        "cluster.tls_cert): a stranger gets no further than the handshake",
    )
    transport: str = config_key(
        _transport,
        "sockets",
        "what carries rows between nodes: 'sockets' (plain TCP, on a port of its own; where that is out of reach, and "
        "with TLS, 'flight' is used) or 'flight' (Arrow Flight)",
    )
    streams: int = config_key(
        _streams,
        2,
        "connections that one read of another node's rows uses at the same time, at most; plain TCP one for two cores",
    )
    chunk_bytes: int = config_key(
        as_chunk_bytes, 8 << 20, "what one message between nodes carries of a field; of Flight's 1 MiB at most"
    )
    populate: int = config_key(
        parse_size,
        256 << 20,
        "free memory that a node's service keeps touched for rows of other nodes, as first touches are slow; at most a "
        "quarter of storage.size",
    )
    call_s: float = config_key(
        _positive_s, 60.0, "seconds that a call waits for another node where the call has no timeout of its own"
    )
    lost_after_s: float = config_key(
        _lost_after,
        30.0,
        "seconds without a sign of life after which a node counts as lost. A node whose service died keeps its rows "
        "for a new one 20 s longer",
    )
    replicas: int = config_key(_replicas, 1, "2: every row is kept on two nodes, so that one may be lost")

    def check(self) -> None:
        """Raises `ValueError` for keys that do not go together."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("cluster.tls_cert and cluster.tls_key belong together: set both, or neither")
        if self.tls_ca is not None and self.tls_cert is None:
            raise ValueError(
                "cluster.tls_ca is set without cluster.tls_cert and cluster.tls_key: nodes would not use it"
            )
        if self.tls_verify_clients and self.tls_cert is None:
            raise ValueError(
                "cluster.tls_verify_clients is set without cluster.tls_cert and cluster.tls_key: nobody would be asked"
            )


def port_range(ports: str | None) -> range:
    """The ports that ``cluster.port`` allows; 0 alone for any free one."""
    if ports is None:
        return range(1)
    first, dash, last = ports.partition("-")
    return range(int(first), int(last if dash else first) + 1)
