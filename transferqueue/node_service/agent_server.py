"""What an agent serves at: calls, and rows beside them."""

from __future__ import annotations

from collections.abc import Mapping

from transferqueue.cluster_config import ClusterConfig, port_range
from transferqueue.logs import get_logger
from transferqueue.nodes.rpc_server import Handler, RpcServer, StreamSource
from transferqueue.nodes.tls import TlsFiles
from transferqueue.nodes.transport.payload_server import PayloadServer

_log = get_logger("nodes")


class AgentServer:
    """Bound when made, with the first of its handlers; a call of another one waits until `serve` brings the rest.

    Args:
        host, token, tls: of the node.
        config: ports and transport.
        last_port: where others look for the node; 0: nowhere yet.
        handlers: method -> handler.

    Raises:
        OSError: no port of ``cluster.port`` is free.
    """

    def __init__(
        self,
        host: str,
        config: ClusterConfig,
        *,
        token: str,
        tls: TlsFiles | None,
        last_port: int,
        handlers: Mapping[str, Handler],
    ) -> None:
        self._host = host
        self._config = config
        self._token = token
        self._tls = tls
        self._payload: PayloadServer | None = None
        ports = list(port_range(config.port))
        if last_port and (last_port in ports or ports == [0]):
            ports.insert(0, last_port)
        self._calls = self._bound(ports, handlers)

    @property
    def port(self) -> int:
        """Where calls go."""
        return self._calls.port

    def serve(self, handlers: Mapping[str, Handler], streams: StreamSource | None) -> None:
        """From now on these, too, and nothing else is waited for."""
        if streams is not None:
            self._calls.add_streams(streams)
            self._serve_payload(streams)
        self._calls.add_handlers(handlers)
        self._calls.complete()

    def add(self, handlers: Mapping[str, Handler]) -> None:
        """More methods."""
        self._calls.add_handlers(handlers)

    def shutdown(self) -> None:
        """Idempotent."""
        self._calls.shutdown()
        if self._payload is not None:
            self._payload.close()

    def _bound(self, ports: list[int], handlers: Mapping[str, Handler]) -> RpcServer:
        last: OSError | None = None
        for port in ports:
            try:
                return RpcServer(
                    self._host, port, token=self._token, tls=self._tls, handlers=handlers, is_complete=False
                )
            except OSError as error:
                last = error
        raise OSError(f"no port of cluster.port={self._config.port} can be served at {self._host}: {last}") from last

    def _serve_payload(self, streams: StreamSource) -> None:
        """Plain TCP for rows. Where there is none, or no port left, others are told nothing, and use Flight."""
        if self._config.transport != "sockets" or self._tls is not None:
            return
        ports = [port for port in port_range(self._config.port) if port == 0 or port > self.port]
        try:
            self._payload = PayloadServer(
                self._host, ports, token=self._token, streams=streams, answer=self._calls.answer
            )
        except OSError as error:
            _log.warning(
                "rows go to other nodes over Flight, at three times the processor time: cluster.port=%s has no second "
                "port for them: %s",
                *(self._config.port, error),
            )
            return
        self._calls.add_handlers(self._payload.handlers())
