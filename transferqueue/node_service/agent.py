"""The process that makes a node part of a session: it keeps the node's store, serves the other nodes, and tells the
directory that it lives.

A node that lost its agent goes on for its own processes; what other nodes ask of it waits until the agent is started
again, finds the session of the node with all rows, and tells the directory its new address.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from transferqueue.config import Config, build_config
from transferqueue.errors import ClosedError, NodeUnreachableError, SessionNotFoundError, TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.node_service.agent_server import AgentServer
from transferqueue.node_service.agent_spec import AgentSpec, tls_files
from transferqueue.node_service.headship import Headship
from transferqueue.node_service.members import MemberClient, Members
from transferqueue.node_service.node_session import NodeSession, last_file, open_node_session
from transferqueue.node_service.warm_room import WarmRoom
from transferqueue.node_service.work import NodeWork, make_work
from transferqueue.nodes.cluster_file import write_cluster_file
from transferqueue.nodes.names import is_hidden
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.tls import TlsFiles
from transferqueue.service import StorageService
from transferqueue.storage.attachment import Attachment
from transferqueue.storage.janitor import ensure_janitor

_log = get_logger("nodes")
_BEAT_S = 1.0
# What a process takes at most to be an agent again, on a busy machine.
_STARTS_WITHIN_S = 20.0


class Agent:
    """One node's.

    Args:
        spec: which node of which cluster.
        directory: the endpoint of the directory as it is now, `SessionNotFoundError` when there is none any more.
        headship: without Ray: who has the directory; it says where that is.
        work: what it does for other nodes, made when its session is there.

    Raises:
        ValueError: the configuration is none, or names certificates that do not go together.
    """

    def __init__(
        self,
        spec: AgentSpec,
        *,
        directory: Callable[[], tuple[str, int]] | None = None,
        headship: Headship | None = None,
        work: Callable[[Attachment, Config], NodeWork] = make_work,
    ) -> None:
        self._spec = spec
        self._headship = headship
        endpoint = directory if headship is None else headship.endpoint
        if endpoint is None:
            raise ValueError("an agent needs a directory or a headship")
        self._member = MemberClient(endpoint, token=spec.token, tls=tls_files(build_config(spec.given).cluster))
        self._make_work = work
        self._node: NodeSession | None = None
        self._work: NodeWork | None = None
        self._server: AgentServer | None = None
        self._service: StorageService | None = None
        self._warm_room: WarmRoom | None = None
        self._asked_to_end = threading.Event()
        self._ends_session = True
        self._place: NodePlace | None = None

    @property
    def place(self) -> NodePlace:
        """Where it serves. Raises `RuntimeError` before `start`."""
        if self._place is None:
            raise RuntimeError("the agent has not been started")
        return self._place

    @property
    def attachment(self) -> Attachment:
        """Its hold on the node's session. Raises `RuntimeError` before `start`."""
        if self._node is None:
            raise RuntimeError("the agent has not been started")
        return self._node.attachment

    def start(self) -> NodePlace:
        """Opens the node's session, serves it, joins the directory.

        Raises:
            OSError: no port of ``cluster.port`` is free. StorageFullError: too little room on this machine.
            NodeUnreachableError: the directory does not answer.
        """
        try:
            if self._members is not None:
                # Before the node has a number: who is left of an earlier head's session says which ones were used.
                config, before = build_config(self._spec.given), last_file(self._spec)
                self._server = self._bound(config, tls_files(config.cluster), 0 if before is None else before.port)
                if before is None:
                    self._members.wait_told(self._spec.node_id)
            node = self._node = open_node_session(self._spec, self._reserve)
        except BaseException:
            self._end()
            raise
        try:
            work = self._work = self._make_work(node.attachment, node.config)
            server = self._server = self._server or self._bound(node.config, node.file.tls, node.file.port)
            server.serve({**work.handlers(), "node.end": self._on_end}, work.streams())
            at = self._member.follow()
            file = replace(node.file, port=server.port, directory_host=at[0], directory_port=at[1])
            self._place = NodePlace(
                ordinal=file.ordinal,
                host=file.host,
                port=file.port,
                session=node.attachment.paths.name,
                node_id=file.node_id,
                incarnation=file.incarnation,
            )
            self._node = replace(node, file=file)
            write_cluster_file(node.attachment.paths, file)
            self._service = StorageService(node.attachment.paths, node.attachment.store, node.config)
            self._service.start()
            self._warm_room = WarmRoom(node.attachment.store, node.config.cluster.populate)
            ensure_janitor(node.attachment.paths.name, keep_s=file.options.lost_after_s + _STARTS_WITHIN_S)
            self._join()
            work.start()
            return self.place
        except BaseException:
            # What was adopted holds rows: it is left to the next try. What was made is of no use to anybody.
            self._ends_session = node.file.incarnation == 0
            self._end()
            raise

    @property
    def _members(self) -> Members | None:
        return None if self._headship is None else self._headship.members

    def _reserve(self) -> int:
        if self._members is not None:
            return self._members.reserve()
        return self._member.reserve(self._spec.node_id)

    def _bound(self, config: Config, tls: TlsFiles | None, last_port: int) -> AgentServer:
        server = AgentServer(
            self._spec.host,
            config.cluster,
            token=self._spec.token,
            tls=tls,
            last_port=last_port,
            handlers={} if self._headship is None else self._headship.handlers(),
        )
        if self._headship is not None:
            self._headship.serve(server, self._member.mirror, self._on_superseded)
        return server

    def _on_superseded(self, alone: bool) -> None:
        # Its rows wait for it to join the new head; one that took itself for the first has names of others' rows.
        self.ask_to_end(end_session=alone)

    def _on_end(self, _: object) -> None:
        if self._members is not None:
            self._members.ended.set()
        else:
            self._asked_to_end.set()

    def ask_to_end(self, *, end_session: bool = True) -> None:
        """Lets `run` return soon. May be called from a signal handler.

        Args:
            end_session: the node's rows go; else they wait for the node's next agent.
        """
        self._ends_session = end_session
        self._asked_to_end.set()

    def run(self) -> None:
        """Gives signs of life until the session has ended, or `ask_to_end`; then ends the node's part of it."""
        last_said = ""
        try:
            while not self._asked_to_end.wait(_BEAT_S):
                try:
                    if self.attachment.store.ended or self._beat():
                        break
                    last_said = ""
                except (ClosedError, SessionNotFoundError):
                    break
                except (TransferQueueError, OSError, ValueError) as error:
                    # The directory is away, or the index is full: both pass, and rows of this node are there meanwhile.
                    if str(error) != last_said:
                        last_said = str(error)
                        _log.warning("node %d: no sign of life could be given: %s", self.place.ordinal, error)
        finally:
            self._end()

    def _beat(self) -> bool:
        """One sign of life. Returns whether the session has ended."""
        if self._service is not None:
            self._service.start_if_missing()
        if self._warm_room is not None:
            self._warm_room.tick()
        if self._headship is not None:
            self._follow_directory()
        try:
            answer = self._member.beat(self.place.ordinal, self._facts())
        except NodeUnreachableError:
            self._follow_directory()  # it may have been started again elsewhere
            raise
        self._remember_nodes()
        if not answer.known and not answer.ended:
            self._join()
            _log.info("node %d: the directory knows it again", self.place.ordinal)
        # Who has the directory ends last, when told to.
        return answer.ended and self._members is None

    def _join(self) -> None:
        if self._node is None:
            return
        roles = None if self._work is None else self._work.roles()
        incarnation = self._member.join(self.place, self._homes(), roles)
        self._place = replace(self.place, incarnation=incarnation)
        self._member.beat(self.place.ordinal, self._facts())  # what it has is known as soon as it is
        # From now on processes may attach: what they put here, others find.
        nodes = tuple(self._member.mirror.places.values())
        self._node = replace(self._node, file=replace(self._node.file, incarnation=incarnation, nodes=nodes))
        write_cluster_file(self._node.attachment.paths, self._node.file)

    def _follow_directory(self) -> None:
        if self._node is None:
            return
        (host, port), file = self._member.follow(), self._node.file
        term = file.term if self._headship is None else self._headship.term
        if (host, port, term) != (file.directory_host, file.directory_port, file.term):
            self._node = replace(self._node, file=replace(file, directory_host=host, directory_port=port, term=term))
            write_cluster_file(self._node.attachment.paths, self._node.file)

    def _remember_nodes(self) -> None:
        places = tuple(self._member.mirror.places.values())
        if self._node is not None and places and places != self._node.file.nodes:
            self._node = replace(self._node, file=replace(self._node.file, nodes=places))
            write_cluster_file(self._node.attachment.paths, self._node.file)

    def _facts(self) -> dict[str, Any]:
        store = self.attachment.store
        figures = store.stats()
        clients = sum(client["alive"] and client["owner"] != store.owner for client in store.clients())
        return {
            "clients": clients,
            "total_bytes": figures["total_bytes"],
            "used_bytes": figures["used_bytes"],
            "free_bytes": figures["free_bytes"],
            "rows": figures["rows"],
            "homes": len(self._homes()),
            **({} if self._work is None else self._work.facts()),
        }

    def _homes(self) -> list[str]:
        return [name for name in self.attachment.store.partitions() if not is_hidden(name)]

    def _end(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
        if self._node is None:
            return
        node, self._node = self._node, None
        if self._work is not None:
            self._work.stop()
        if self._service is not None:
            self._service.stop()
        if self._ends_session:
            node.attachment.end()
        else:
            node.attachment.detach()
        node.lock.close()
        if self._place is not None and self._ends_session and self._members is None:
            # Last: whoever ended the session waits for that.
            try:
                self._member.leave(self._place.ordinal)
            except (TransferQueueError, OSError) as error:
                _log.info("node %d leaves without a word, the directory does not answer: %s", node.file.ordinal, error)
        self._member.close()
