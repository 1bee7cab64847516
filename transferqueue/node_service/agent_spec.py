"""What a node's agent is told when it is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transferqueue.cluster_config import ClusterConfig
from transferqueue.config import build_config
from transferqueue.nodes.cluster_file import ClusterOptions
from transferqueue.nodes.tls import TlsFiles
from transferqueue.storage.names import node_session_name


@dataclass(frozen=True)
class AgentSpec:
    """One agent's. It travels to the agent's process, so it holds plain values.

    Attributes:
        cluster: name of the session that all nodes share.
        node_id: what the node calls itself; the same when its agent is started again.
        host: the address that it serves at.
        token: of the cluster.
        given: the configuration as the creator was given it: dotted key -> value, not yet parsed. It is read on the
            node, where the paths in it are meant.
        sources: dotted key -> where its value comes from.
    """

    cluster: str
    node_id: str
    host: str
    token: str
    given: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        node_session_name(self.cluster, 0)  # refuses a name that is too long before anything is made

    def __repr__(self) -> str:
        # Without the token: it must not reach a log.
        return f"AgentSpec({self.cluster!r}, {self.node_id!r} at {self.host})"

    @property
    def options(self) -> ClusterOptions:
        """What all nodes do alike."""
        return ClusterOptions.of(build_config(self.given).cluster)


def tls_files(config: ClusterConfig) -> TlsFiles | None:
    """The certificates that a configuration names.

    Raises:
        ValueError: keys that do not go together.
    """
    config.check()
    if config.tls_cert is None or config.tls_key is None:
        return None
    return TlsFiles(
        config.tls_cert,
        config.tls_key,
        config.tls_ca or config.tls_cert,
        verify_clients=config.tls_verify_clients,
    )
