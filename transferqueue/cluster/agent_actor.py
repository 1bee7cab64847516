"""A node's agent as a Ray actor. Ray starts it again when it dies; it finds the node's session by itself."""

from __future__ import annotations

import threading
import time

from transferqueue.cluster.cluster_spec import ClusterSpec
from transferqueue.cluster.directory_handle import agent_name, directory_endpoint, find_directory, kill
from transferqueue.errors import SessionNotFoundError
from transferqueue.logs import get_logger
from transferqueue.nodes.place import NodePlace

_log = get_logger("cluster")
_RETRY_S = 2.0


class AgentActor:
    """Serves from the moment it is made; `started` says when, or why not."""

    def __init__(self, spec: ClusterSpec, node_id: str, host: str) -> None:
        self._spec = spec.agent(node_id, host)
        self._settled = threading.Event()
        self._place: NodePlace | None = None
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="transferqueue-agent", daemon=True).start()

    def started(self) -> NodePlace:
        """Where it serves, once it does.

        Raises:
            what kept it from starting.
        """
        self._settled.wait()
        if self._error is not None or self._place is None:
            raise self._error or RuntimeError("the session ended before its agent served")
        return self._place

    def _run(self) -> None:
        # Not above: the directory's actor names this class, and needs no torch.
        from transferqueue.node_service.agent import Agent

        while True:
            agent = Agent(self._spec, directory=lambda: directory_endpoint(self._spec.cluster))
            try:
                self._place = agent.start()
            except Exception as error:  # told to whoever asks, and tried again: after a restart rows wait for it
                _log.warning("the service of session %r on this node did not start: %s", self._spec.cluster, error)
                self._error = error
                self._settled.set()
                if isinstance(error, SessionNotFoundError):
                    break
                time.sleep(_RETRY_S)
                continue
            self._error = None
            self._settled.set()
            agent.run()
            break
        # The directory takes its agents down, but one that was started again a moment ago may not know them all.
        while find_directory(self._spec.cluster) is not None:
            time.sleep(_RETRY_S)
        kill(agent_name(self._spec.cluster, self._spec.token, self._spec.node_id))
