"""What a node's agent does for the other nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from transferqueue.config import Config
from transferqueue.node_service.home_work import HomeWork
from transferqueue.nodes.directory.role import Role
from transferqueue.nodes.rpc_server import Handler, StreamSource
from transferqueue.storage.attachment import Attachment


class NodeWork(Protocol):
    """Made by the agent when the node's session is there."""

    def handlers(self) -> Mapping[str, Handler]:
        """Method -> handler."""
        ...

    def streams(self) -> StreamSource | None:
        """The payload that others may pull."""
        ...

    def facts(self) -> Mapping[str, int | None]:
        """What the directory is told of it beside what the store says."""
        ...

    def roles(self) -> Mapping[str, Role]:
        """Partition -> role, as this node knows itself: of those of which another node follows the changes."""
        ...

    def start(self) -> None:
        """Begins what it does without being asked. Called once the node has joined."""

    def stop(self) -> None:
        """Idempotent."""


def make_work(attachment: Attachment, config: Config) -> NodeWork:
    """That of an agent in use."""
    return HomeWork(attachment, config)
