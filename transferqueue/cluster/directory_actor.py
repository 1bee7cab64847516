"""The directory of a session as a Ray actor, which also sees to it that every node has an agent."""

from __future__ import annotations

import threading
import time
import warnings
from typing import Any

from transferqueue.cluster.agent_actor import AgentActor
from transferqueue.cluster.cluster_spec import ClusterSpec, config_of
from transferqueue.cluster.directory_handle import ClusterState, agent_name, detached, directory_name, kill
from transferqueue.cluster.directory_port import bind_directory, forget_directory_port
from transferqueue.cluster.ray_nodes import RayNode, living_nodes, spanned
from transferqueue.cluster.ray_registry import forget_session
from transferqueue.logs import get_logger
from transferqueue.node_service.agent_spec import tls_files
from transferqueue.node_service.members import Members
from transferqueue.nodes.directory.service import DirectoryService
from transferqueue.nodes.place import NodePlace

_log = get_logger("cluster")
_LOOK_S = 1.0
# A session that nobody uses any more goes; one that nobody used yet is being started.
_UNUSED_S = 10.0
_NOT_YET_USED_S = 45.0
_RESTART_SETTLE_S = 5.0
_TAKEN_DOWN_WITHIN_S = 10.0
_TRY_AGAIN_S = 30.0
_LINGERS_S = 1.0


def _was_started_again() -> bool:
    import ray

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray asks itself what it says is deprecated
        return bool(ray.get_runtime_context().was_current_actor_reconstructed)


class DirectoryActor:
    """Nodes that join the Ray cluster get an agent, nodes that leave it are lost, and the session ends when its creator
    closes it, or when no process uses it any more. Its state is told to it by the agents when Ray starts it again."""

    def __init__(self, spec: ClusterSpec) -> None:
        again = _was_started_again()
        self._spec = spec
        config = config_of(spec)
        self._directory = DirectoryService(
            lost_after_s=config.cluster.lost_after_s, settle_s=_RESTART_SETTLE_S, again=again
        )
        self._members = Members(self._directory, settle_s=_RESTART_SETTLE_S if again else 0.0)
        self._server = bind_directory(spec, config.cluster, tls_files(config.cluster), self._members.handlers())
        self._guard = threading.Lock()
        self._wanted: dict[str, str] = {}
        self._agents: dict[str, Any] = {}
        self._starting: dict[str, Any] = {}  # node -> reference of its agent's `started`
        self._places: dict[str, NodePlace] = {}
        self._errors: dict[str, BaseException] = {}
        self._try_again_s: dict[str, float] = {}
        self._used_s = time.monotonic()
        self._was_used = again
        threading.Thread(target=self._watch, name="transferqueue-directory", daemon=True).start()

    def endpoint(self) -> tuple[str, int]:
        """(host, port) of its server."""
        return self._server.host, self._server.port

    def look(self) -> ClusterState:
        """Where the session stands. Whoever asks is about to use it."""
        with self._guard:
            self._used_s = time.monotonic()
            return ClusterState(
                self._members.ended.is_set(),
                self._spec.resource(),
                dict(self._wanted),
                frozenset(self._places),
                dict(self._errors),
            )

    def adopt(self) -> bool:
        """Whether nobody used the session, and the caller is its creator from now on."""
        with self._guard:
            unused = self._was_used and self._is_unused() and not self._members.ended.is_set()
            self._was_used &= not unused
            self._used_s = time.monotonic()
            return unused

    def end_if_unused(self) -> bool:
        """Ends the session if nobody uses it; returns whether it has ended."""
        with self._guard:
            if self._was_used and self._is_unused():
                self._members.ended.set()
            return self._members.ended.is_set()

    def end(self) -> None:
        """Ends the session for everybody."""
        self._members.ended.set()

    def _agent_name(self, node_id: str) -> str:
        return agent_name(self._spec.name, self._spec.token, node_id)

    def _is_unused(self) -> bool:
        """Whether every node says that no process is attached to it. One that is not heard of may have some."""
        facts = self._members.facts()
        heard = bool(self._places) and all(place.ordinal in facts for place in self._places.values())
        return heard and all(not said.get("clients", 0) for said in facts.values())

    def _watch(self) -> None:
        last_said = ""
        while not self._members.ended.wait(0.1 if self._starting else _LOOK_S):
            try:
                self._see_nodes()
                self._see_agents()
                self._see_clients()
                last_said = ""
            except Exception as error:  # of Ray, mostly: it must outlive what passes
                if str(error) != last_said:
                    last_said = str(error)
                    _log.warning("session %r: looking at its nodes failed: %s", self._spec.name, error)
        self._take_down()

    def _see_nodes(self) -> None:
        nodes = {node.node_id: node for node in spanned(living_nodes(), self._spec.resource(), self._spec.creator_node)}
        with self._guard:
            gone = [node_id for node_id in self._agents if node_id not in nodes]
            self._wanted = {node_id: str(node) for node_id, node in nodes.items()}
            for node_id in gone:
                self._agents.pop(node_id)
                self._starting.pop(node_id, None)
                self._errors.pop(node_id, None)
                self._places.pop(node_id, None)
            new = [
                node
                for node_id, node in nodes.items()
                if node_id not in self._agents and time.monotonic() >= self._try_again_s.get(node_id, 0.0)
            ]
            for node in new:
                self._start_agent(node)
        for place in self._directory.places():
            # Also those that died with the directory, of which it hears from the others.
            if place.alive and place.node_id not in nodes:
                self._members.lose(place.ordinal)
                _log.warning("session %r: %s is lost, its Ray node is dead", self._spec.name, place)

    def _start_agent(self, node: RayNode) -> None:
        name = self._agent_name(node.node_id)
        agent = detached(AgentActor, name, node.node_id, soft=False, max_concurrency=4, get_if_exists=True)
        actor = agent.remote(self._spec, node.node_id, node.host)
        self._agents[node.node_id] = actor
        self._starting[node.node_id] = actor.started.remote()

    def _see_agents(self) -> None:
        import ray

        with self._guard:
            starting = {reference: node_id for node_id, reference in self._starting.items()}
        if not starting:
            return
        ready, _ = ray.wait(list(starting), num_returns=len(starting), timeout=0.0, fetch_local=False)
        for reference in ready:
            node_id = starting[reference]
            place: NodePlace | None = None
            failed: BaseException | None = None
            try:
                place = ray.get(reference)
            except Exception as error:  # whatever kept it from starting is told to whoever waits for it
                failed = getattr(error, "cause", None) or error
                _log.warning("session %r: no service on %s: %s", self._spec.name, self._wanted.get(node_id), failed)
            with self._guard:
                self._starting.pop(node_id, None)
                if place is not None:
                    self._places[node_id] = place
                    self._errors.pop(node_id, None)
                    continue
                assert failed is not None  # narrowing
                self._errors[node_id] = failed
                self._agents.pop(node_id, None)
                self._try_again_s[node_id] = time.monotonic() + _TRY_AGAIN_S
            kill(self._agent_name(node_id))

    def _see_clients(self) -> None:
        now_s = time.monotonic()
        with self._guard:
            if not self._is_unused():
                self._was_used |= any(said.get("clients", 0) for said in self._members.facts().values())
                self._used_s = now_s
            unused_s = now_s - self._used_s
            over = unused_s > (_UNUSED_S if self._was_used else _NOT_YET_USED_S)
        if over:
            _log.info("session %r: nobody has used it for %.0f s, it ends", self._spec.name, unused_s)
            self._members.ended.set()

    def _take_down(self) -> None:
        forget_session(self._spec.name)
        until_s = time.monotonic() + _TAKEN_DOWN_WITHIN_S
        while self._members.present() and time.monotonic() < until_s:
            time.sleep(0.05)  # agents end their sessions when they hear of it
        # Not only those that it knows: it may have been started again a moment ago.
        for node_id in {*self._agents, *(node.node_id for node in living_nodes())}:
            kill(self._agent_name(node_id))
        forget_directory_port(self._spec.name)
        time.sleep(_LINGERS_S)  # whoever ended the session asks whether it is over
        kill(directory_name(self._spec.name))
