"""What a session that spans the nodes of a Ray cluster is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transferqueue.config import Config, build_config
from transferqueue.node_service.agent_spec import AgentSpec


@dataclass(frozen=True)
class ClusterSpec:
    """Travels to the actors of the session. Ray carries and keeps it: who may read Ray's state has the token.

    Attributes:
        name: of the session.
        token: every call between its nodes carries it.
        given, sources: the configuration as the creator was given it, not yet parsed, and where it comes from.
        creator_node: Ray's id of the creator's node, which belongs to the session whatever ``cluster.resource`` says.
    """

    name: str
    token: str
    given: Mapping[str, Any]
    sources: Mapping[str, str]
    creator_node: str

    def __repr__(self) -> str:
        return f"ClusterSpec({self.name!r})"

    def resource(self) -> str | None:
        """``cluster.resource``. The rest of the configuration is read on each node, where the paths in it are meant."""
        return build_config({"cluster.resource": self.given.get("cluster.resource")}).cluster.resource

    def agent(self, node_id: str, host: str) -> AgentSpec:
        """What the agent of a node is told; `host` is the node's address in Ray."""
        chosen = build_config({"cluster.host": self.given.get("cluster.host")}).cluster.host
        return AgentSpec(self.name, node_id, chosen or host, self.token, self.given, self.sources)


def config_of(spec: ClusterSpec) -> Config:
    """The configuration, read on this machine."""
    return build_config(spec.given)
