"""What a session that spans the nodes of a Ray cluster is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transferqueue.config import Config, build_config, environment_variable, read_environment
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

    def host_here(self, address: str) -> str:
        """Where servers on this node listen: at the ``cluster.host`` of this node's own environment, which the raylet
        was started with; else of the creator, unless its own environment said it; else at `address`, the node's in Ray.
        """
        key = "cluster.host"
        own = read_environment()[1].get(key)
        if own is None and self.sources.get(key) != f"environment variable {environment_variable(key)}":
            own = self.given.get(key)
        return build_config({key: own}).cluster.host or address

    def agent(self, node_id: str, address: str) -> AgentSpec:
        """What the agent of this node is told; `address` is the node's in Ray."""
        return AgentSpec(self.name, node_id, self.host_here(address), self.token, self.given, self.sources)


def config_of(spec: ClusterSpec) -> Config:
    """The configuration, read on this machine."""
    return build_config(spec.given)
