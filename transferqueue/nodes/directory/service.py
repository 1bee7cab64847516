"""The directory as handlers of a server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from typing import Any

from transferqueue.errors import TransferTimeoutError
from transferqueue.nodes.directory.mirror import place_of_message
from transferqueue.nodes.directory.role import Role, role_of_message
from transferqueue.nodes.directory.state import DirectoryState
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.rpc_server import Call

LOST_AFTER_S = 10.0


class DirectoryService:
    """To be served by any `RpcServer`: ``handlers={**DirectoryService().handlers(), ...}``.

    Args:
        lost_after_s: see `DirectoryState`.
        settle_s: how long a directory that was started anew waits for agents before it says that a partition has no
            home, or that there is no such node. Agents should send heartbeats at least twice as often.
        again: it was: there are agents to be waited for.
    """

    def __init__(
        self,
        *,
        lost_after_s: float = LOST_AFTER_S,
        settle_s: float | None = None,
        again: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._guard = threading.Condition()
        self._state = DirectoryState(lost_after_s, clock(), settle_s, again=again)

    def handlers(self) -> Mapping[str, Callable[[Call], Any]]:
        """Method -> handler; all names begin with ``directory.``"""
        return {
            "directory.join": self._join,
            "directory.heartbeat": self._heartbeat,
            "directory.nodes": self._nodes,
            "directory.mirror": self._mirror,
            "directory.home_of": self._home_of,
            "directory.place": self._place,
            "directory.role": self._role,
            "directory.declare": self._declare,
            "directory.touch": self._touch,
            "directory.move": self._move,
            "directory.forget": self._forget,
            "directory.partitions": self._partitions,
            "directory.mark_lost": self._mark_lost,
            "directory.spend": self._spend,
        }

    def places(self, *, joined: bool = False) -> list[NodePlace]:
        """All nodes that are known of, for whoever hosts the directory. `joined`: without those that others told of."""
        with self._guard:
            places = self._state.nodes(self._clock())
            return [place for place in places if not joined or not self._state.is_recalled(place.ordinal)]

    def spent(self) -> int:
        """The highest ordinal that no new node may have; -1: there is none."""
        with self._guard:
            return self._state.spent

    def is_told(self, node_id: str) -> bool:
        """Whether a node has said what an earlier directory knew, and all but that one are here or lost."""
        with self._guard:
            return self._state.was_told and self._state.settled(self._clock(), but=node_id)

    def news(self, seen: Sequence[int] | None) -> list[Any]:
        """For `Mirror.take`: [which directory this is, version of the nodes, places or None when the caller has that
        version, version of the roles, whether they are all, roles that changed since].

        Args:
            seen: `Mirror.seen`.
        """
        with self._guard:
            state = self._state
            places = state.nodes(self._clock())
            born, nodes, roles = seen or (None, None, 0)
            whole = born != state.born
            changed = state.roles_since(0 if whole else roles)
            told = None if not whole and nodes == state.version else [list(astuple(place)) for place in places]
            return [state.born, state.version, told, state.roles_version, whole, _messages(changed)]

    def mark_lost(self, ordinal: int) -> bool:
        """As a call does: for whoever hosts the directory and hears of a node's end (Ray)."""
        with self._guard:
            return self._state.mark_lost(ordinal)

    def _join(self, call: Call) -> list[Any]:
        args = call.args
        with self._guard:
            joined = self._state.join(
                str(args["node_id"]),
                str(args["session"]),
                str(args["host"]),
                int(args["port"]),
                self._clock(),
                ordinal=args.get("ordinal"),
                incarnation=int(args.get("incarnation", 0)),
                partitions=[str(name) for name in args.get("partitions", ())],
            )
            if (known := args.get("known")) is not None:
                places = [place_of_message(place) for place in known["nodes"]]
                roles = {str(name): role_of_message(role) for name, role in known["roles"].items()}
                self._state.recall(places, roles, self._clock())
            for name, role in args.get("roles", {}).items():
                self._state.declare(str(name), role_of_message(role), by=joined.ordinal)
            self._guard.notify_all()
        return list(astuple(joined))

    def _heartbeat(self, call: Call) -> bool:
        with self._guard:
            return self._state.heartbeat(call.args["ordinal"], call.args["incarnation"], self._clock())

    def _nodes(self, call: Call) -> list[Any]:
        """[version, places]; the places are None when the caller has that version."""
        with self._guard:
            self._wait_until_settled(call, lambda: True, "which nodes there are")
            places = self._state.nodes(self._clock())
            version = self._state.version
        known = call.args.get("version") == version
        return [version, None if known else [list(astuple(place)) for place in places]]

    def _mirror(self, call: Call) -> list[Any]:
        with self._guard:
            self._wait_until_settled(call, lambda: True, "which nodes there are")
        return self.news(None)

    def _home_of(self, call: Call) -> int | None:
        partition, create_at = str(call.args["partition"]), call.args.get("create_at")
        with self._guard:
            self._wait_for_home(call, partition)
            self._state.nodes(self._clock())  # a home that is lost by now has been followed by its standby
            return self._state.home_of(partition, create_at)

    def _role(self, call: Call) -> list[Any]:
        partition = str(call.args["partition"])
        with self._guard:
            self._wait_for_home(call, partition)
            self._state.nodes(self._clock())
            return self._state.role_of(partition).message()

    def _declare(self, call: Call) -> list[Any]:
        role = role_of_message(call.args["role"])
        with self._guard:
            self._state.nodes(self._clock())
            found = self._state.declare(str(call.args["partition"]), role)
            self._guard.notify_all()
            return found.message()

    def _touch(self, call: Call) -> list[Any]:
        """[alive, which directory this is, version of the roles, the node's roles]; None in their place when the caller
        has that version."""
        ordinal = int(call.args["ordinal"])
        with self._guard:
            state = self._state
            alive = state.touch(ordinal, self._clock())
            known = call.args["seen"] == [state.born, state.roles_version]
            roles = None if known else _messages(state.roles_of(ordinal))
            return [alive, state.born, state.roles_version, roles]

    def _place(self, call: Call) -> int:
        with self._guard:
            return self._state.place(str(call.args["partition"]), int(call.args["ordinal"]))

    def _move(self, call: Call) -> None:
        with self._guard:
            self._state.move(str(call.args["partition"]), int(call.args["ordinal"]))

    def _forget(self, call: Call) -> bool:
        with self._guard:
            return self._state.forget(str(call.args["partition"]), call.args.get("ordinal"))

    def _partitions(self, call: Call) -> dict[str, int]:
        with self._guard:
            return self._state.partitions()

    def _spend(self, call: Call) -> None:
        with self._guard:
            self._state.spend(int(call.args["ordinal"]))

    def _mark_lost(self, call: Call) -> bool:
        return self.mark_lost(int(call.args["ordinal"]))

    def _wait_for_home(self, call: Call, partition: str) -> None:
        """Returns when the partition's home is known, or everybody has said what there is. Holds the guard."""
        what = f"which of them is home of partition {partition!r}"
        self._wait_until_settled(call, lambda: self._state.home_of(partition) is None, what)

    def _wait_until_settled(self, call: Call, is_unknown: Callable[[], bool], what: str) -> None:
        until_s = time.monotonic() + (60.0 if call.left_s is None else call.left_s)
        while is_unknown() and not self._state.settled(self._clock()):
            if call.stopping.is_set() or time.monotonic() >= until_s:
                raise TransferTimeoutError(
                    f"the directory was started anew and waits for the nodes to say {what}", missing=what
                )
            self._guard.wait(0.1)


def _messages(roles: Mapping[str, Role]) -> dict[str, Any]:
    return {name: role.message() for name, role in roles.items()}
