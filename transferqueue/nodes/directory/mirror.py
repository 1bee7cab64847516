"""What each agent remembers of the directory, so that a directory that starts anew can be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from transferqueue.errors import CorruptSegmentError
from transferqueue.nodes.directory.role import Role, role_of_message
from transferqueue.nodes.place import NodePlace


class Mirror:
    """Nodes and roles as the directory said them last, a second old at most while it answers. It has one writer, the
    agent's loop; who reads beside it sees one state or the other.

    Attributes:
        seen: which directory that was and the versions of its nodes and roles; None: it has said nothing yet.
        places: by ordinal.
        roles: by partition.
    """

    def __init__(self) -> None:
        self.seen: tuple[int, int, int] | None = None
        self.places: Mapping[int, NodePlace] = {}
        self.roles: Mapping[str, Role] = {}

    def take(self, news: Any) -> None:
        """What `DirectoryService.news` says.

        Raises:
            CorruptSegmentError: it is nothing of the kind.
        """
        match news:
            case [
                int() as born,
                int() as nodes,
                None | list() as places,
                int() as roles,
                bool() as whole,
                dict() as new,
            ]:
                if places is not None:
                    self.places = {place.ordinal: place for place in map(place_of_message, places)}
                if whole or new:
                    told = {str(name): role_of_message(role) for name, role in new.items()}
                    kept = {} if whole else self.roles
                    self.roles = {name: role for name, role in {**kept, **told}.items() if role != Role(None)}
                self.seen = born, nodes, roles
            case _:
                raise CorruptSegmentError(f"the directory answered what is no answer: {str(news)[:200]!r}")

    def told(self) -> dict[str, Any]:
        """For a directory that does not know it."""
        return {
            "nodes": [list(astuple(place)) for place in self.places.values()],
            "roles": {name: role.message() for name, role in self.roles.items()},
        }

    def is_elsewhere(self, partition: str, ordinal: int) -> bool:
        """Whether another node is the partition's home, as far as is known."""
        role = self.roles.get(partition)
        return role is not None and role.home not in (None, ordinal)


def place_of_message(message: Any) -> NodePlace:
    """Raises CorruptSegmentError for what is none."""
    match message:
        case [
            int() as ordinal,
            str() as host,
            int() as port,
            str() as session,
            str() as node_id,
            bool() as alive,
            int() as n,
        ]:
            return NodePlace(ordinal, host, port, session, node_id, alive, n)
    raise CorruptSegmentError(f"what should be the place of a node is {str(message)[:200]!r}")
