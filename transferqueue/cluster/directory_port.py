"""The server of a directory actor: at the port that it had before Ray started it again, where that can be."""

from __future__ import annotations

from collections.abc import Mapping

from transferqueue.cluster.cluster_spec import ClusterSpec
from transferqueue.cluster.ray_nodes import living_nodes, own_node_id
from transferqueue.cluster.ray_registry import forget_value, read_value, write_value
from transferqueue.cluster_config import ClusterConfig, port_range
from transferqueue.nodes.rpc_server import Handler, RpcServer
from transferqueue.nodes.tls import TlsFiles


def _key(session: str) -> str:
    return f"directory-port:{session}"


def bind_directory(
    spec: ClusterSpec, config: ClusterConfig, tls: TlsFiles | None, handlers: Mapping[str, Handler]
) -> RpcServer:
    """The server, bound.

    Raises:
        OSError: no port of ``cluster.port`` is free.
    """
    own = own_node_id()
    host = spec.host_here(next((node.host for node in living_nodes() if node.node_id == own), "127.0.0.1"))
    ports = list(port_range(config.port))
    before = read_value(_key(spec.name)) or ""
    at, _, port = before.rpartition(" ")
    if at == host and port.isdigit():
        ports.insert(0, int(port))  # agents and clients find it at once
    last: OSError | None = None
    for number in ports:
        try:
            server = RpcServer(host, number, token=spec.token, tls=tls, handlers=handlers)
        except OSError as error:
            last = error
            continue
        write_value(_key(spec.name), f"{host} {server.port}")
        return server
    raise OSError(f"no port of cluster.port={config.port} can be served at {host}: {last}") from last


def forget_directory_port(session: str) -> None:
    """Of a session that ended."""
    forget_value(_key(session))
