"""Which node of a session without Ray has the directory: its head, or the one that was made head when that was lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from transferqueue.config import build_config
from transferqueue.errors import NodeUnreachableError, TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.node_service.agent_spec import AgentSpec, tls_files
from transferqueue.node_service.members import Members
from transferqueue.nodes.directory.mirror import Mirror
from transferqueue.nodes.directory.service import DirectoryService
from transferqueue.nodes.place import NodePlace, endpoint_text
from transferqueue.nodes.rpc_client import RpcClient
from transferqueue.nodes.rpc_server import Call, Handler

if TYPE_CHECKING:
    from transferqueue.node_service.agent_server import AgentServer

_log = get_logger("nodes")
# A node that looks for the old head hears of the new one with its next sign of life but one.
_SETTLE_S = 10.0
_ANSWERS_WITHIN_S = 2.0
_TELL_S = 2.0


class Headship:
    """Of one node. Thread-safe.

    Args:
        spec: of the node.
        given: the configuration of the head, dotted key -> value, which nodes that join take.
        at: where the directory is; None: here, with `directory`.
        directory, settle_s: see `Members`.
        term: see below.

    Attributes:
        members: of the directory; None: another node has it.
        term: how often another node was made head. A head of an earlier term is none.
        is_superseded: this node was head, and another was made it.
    """

    def __init__(
        self,
        spec: AgentSpec,
        given: Mapping[str, Any],
        *,
        at: tuple[str, int] | None = None,
        directory: DirectoryService | None = None,
        settle_s: float = 0.0,
        term: int = 0,
    ) -> None:
        self._spec = spec
        self._given = dict(given)
        self._at = at
        self._directory = directory
        self.members = None if directory is None else Members(directory, settle_s=settle_s)
        self.term = term
        self.is_superseded = False
        self._guard = threading.Lock()
        self._server: AgentServer | None = None
        self._mirror = Mirror()
        self._superseded: Callable[[bool], None] = lambda alone: None

    def serve(self, server: AgentServer, mirror: Mirror, superseded: Callable[[bool], None]) -> None:
        """The node's server is there.

        Args:
            mirror: what its agent remembers of the directory.
            superseded: called when another node is head, with whether no other ever joined this one.
        """
        self._server, self._mirror, self._superseded = server, mirror, superseded

    def endpoint(self) -> tuple[str, int]:
        """Where the directory is now. Raises NodeUnreachableError: here, and the server is not yet."""
        if self._at is not None:
            return self._at
        if self._server is None:
            raise NodeUnreachableError("this node's own server, which has the directory, is not there yet")
        return self._spec.host, self._server.port

    def handlers(self) -> dict[str, Handler]:
        """Method -> handler, those of the directory among them where it is here."""
        mine: dict[str, Handler] = {
            "node.describe": self._describe,
            "node.lead": self._lead,
            "node.follow": self._follow,
        }
        return mine if self.members is None else {**self.members.handlers(), **mine}

    def _describe(self, _: Call) -> dict[str, Any]:
        shown = {"session": self._spec.cluster, "given": self._given, "term": self.term}
        return {**shown, "directory": list(self.endpoint())}

    def _lead(self, _: Call) -> list[Any]:
        """Makes this node the head. [host, port] of it."""
        with self._guard:
            if self.members is None:
                self._check_lost()
                assert self._server is not None  # narrowing: it brought the call
                self._directory = DirectoryService(
                    lost_after_s=self._spec.options.lost_after_s, settle_s=_SETTLE_S, again=True
                )
                self.members = Members(self._directory, settle_s=_SETTLE_S)
                self._server.add(self.members.handlers())
                self.term += 1
                self._at = None
                _log.warning("session %r: this node is its head from now on", self._spec.cluster)
                threading.Thread(target=self._tell_others, name="transferqueue-head", daemon=True).start()
        return list(self.endpoint())

    def _check_lost(self) -> None:
        host, port = self.endpoint()
        try:
            self._call(host, port, "node.describe", {})
        except NodeUnreachableError:
            return
        raise ValueError(f"the head at {endpoint_text(host, port)} answers: end it before another node takes its place")

    def _follow(self, call: Call) -> None:
        at, term = (str(call.args["host"]), int(call.args["port"])), int(call.args["term"])
        with self._guard:
            if term < self.term or at == self.endpoint():
                return
            if term == self.term:
                raise ValueError(f"the head is at {endpoint_text(*self.endpoint())}: two nodes were made head")
            self.term, self._at = term, at
            if self.members is None:
                return
            self.is_superseded = True
            assert self._directory is not None  # narrowing: the members are its
            alone = len(self._directory.places()) < 2
        said = "session %r has its head at %s now; this one ends. Start it again with --join"
        _log.error(said, self._spec.cluster, endpoint_text(*at))
        self._superseded(alone)

    def _tell_others(self) -> None:
        members, directory, term = self.members, self._directory, self.term
        assert members is not None  # narrowing: the caller made them
        assert directory is not None
        while not members.ended.is_set() and self.term == term:
            host, port = self.endpoint()
            present = {place.ordinal for place in directory.places(joined=True) if place.alive}
            known: dict[int, NodePlace] = {**self._mirror.places, **{p.ordinal: p for p in directory.places()}}
            for place in known.values():
                if place.ordinal not in present and place.endpoint != (host, port):
                    try:
                        self._call(*place.endpoint, "node.follow", {"host": host, "port": port, "term": term})
                    except (TransferQueueError, OSError, ValueError) as error:
                        _log.info("%s was not told of the new head: %s", place, error)
            members.ended.wait(_TELL_S)

    def _call(self, host: str, port: int, method: str, args: Mapping[str, Any]) -> Any:
        tls = tls_files(build_config(self._spec.given).cluster)
        client = RpcClient(host, port, token=self._spec.token, tls=tls)
        try:
            return client.call(method, args, until_s=time.monotonic() + _ANSWERS_WITHIN_S)
        finally:
            client.close()
