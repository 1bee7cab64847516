"""What the directory's server knows about nodes beside where they are: ordinals given out, what each node has, and
whether the session has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transferqueue.errors import CorruptSegmentError, NodeUnreachableError
from transferqueue.nodes.directory.client import DirectoryClient
from transferqueue.nodes.directory.mirror import Mirror
from transferqueue.nodes.directory.role import Role
from transferqueue.nodes.directory.service import DirectoryService
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.rpc_client import RpcClient
from transferqueue.nodes.rpc_server import Call, Handler
from transferqueue.nodes.tls import TlsFiles

_CALL_S = 30.0
_BEAT_S = 3.0
_WAIT_S = 0.1


class Members:
    """Handlers beside those of a `DirectoryService`, for the same server. Thread-safe.

    Args:
        directory: of the same cluster.
        settle_s: of a directory that was started again: seconds before it gives out ordinals, in which agents tell it
            the highest one that they know of. 0: it is the first.
    """

    def __init__(
        self, directory: DirectoryService, *, settle_s: float = 0.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        directory_handlers = directory.handlers()
        self._directory = directory
        self._handlers: dict[str, Handler] = {
            **directory_handlers,
            "members.reserve": self._reserve,
            "members.beat": self._beat,
            "members.leave": self._leave,
            "members.end": self._end,
            "members.facts": lambda _: self.facts(),
        }
        self._heartbeat = directory_handlers["directory.heartbeat"]
        self._clock = clock
        self._settled_s = clock() + settle_s
        self._guard = threading.Lock()
        self._highest = -1
        self._facts: dict[int, dict[str, Any]] = {}
        self.ended = threading.Event()

    def handlers(self) -> Mapping[str, Handler]:
        """Method -> handler; those of the directory among them."""
        return self._handlers

    def facts(self) -> dict[int, dict[str, Any]]:
        """Ordinal -> what its node said last, of the nodes that are here."""
        alive = self.present()
        with self._guard:
            return {ordinal: dict(facts) for ordinal, facts in self._facts.items() if ordinal in alive}

    def present(self) -> set[int]:
        """Ordinals of the nodes that joined and are not lost."""
        return {place.ordinal for place in self._directory.places() if place.alive}

    def wait_told(self, node_id: str) -> None:
        """Returns when every node that lives has said what there is, or had the time to. For the node `node_id`, which
        hosts the directory and has lost what it had itself."""
        while self._clock() < self._settled_s and not self._directory.is_told(node_id):
            time.sleep(_WAIT_S)

    def lose(self, ordinal: int) -> None:
        """Somebody who knows says that the node is dead."""
        with self._guard:
            self._facts.pop(ordinal, None)
        self._directory.mark_lost(ordinal)

    def reserve(self) -> int:
        """For whoever hosts the directory and is a node itself: an ordinal that no node had, as far as is known."""
        with self._guard:
            self._highest = max(self._highest, self._directory.spent(), *self._ordinals()) + 1
            return self._highest

    def _ordinals(self) -> list[int]:
        return [place.ordinal for place in self._directory.places()]

    def _reserve(self, call: Call) -> int:
        until_s = self._clock() + (_CALL_S if call.left_s is None else call.left_s)
        while (now_s := self._clock()) < self._settled_s and now_s < until_s and not call.stopping.is_set():
            time.sleep(_WAIT_S)
        if now_s < self._settled_s:
            raise NodeUnreachableError("the directory was started again and waits for the nodes that it had")
        return self.reserve()

    def _beat(self, call: Call) -> dict[str, Any]:
        ordinal = int(call.args["ordinal"])
        known = bool(self._heartbeat(call))
        with self._guard:
            self._highest = max(self._highest, ordinal, int(call.args["highest"]), self._directory.spent())
            if known:
                self._facts[ordinal] = dict(call.args["facts"])
            answer = {"known": known, "ended": self.ended.is_set(), "highest": self._highest}
        return {**answer, "news": self._directory.news(call.args.get("seen")) if known else None}

    def _leave(self, call: Call) -> None:
        self.lose(int(call.args["ordinal"]))

    def _end(self, _: Call) -> None:
        self.ended.set()


@dataclass(frozen=True)
class BeatAnswer:
    """What the directory says to a sign of life.

    Attributes:
        known: False: it was started again, or took the node for lost; the agent joins anew.
        ended: the session has ended for everybody.
    """

    known: bool
    ended: bool


class MemberClient:
    """A node's dealings with the directory. Every call that gets no answer in time raises `NodeUnreachableError`.

    Args:
        endpoint: where the directory is now; asked again when it does not answer there.
        token, tls: of the cluster.

    Attributes:
        mirror: what the directory said last, for the next one.
    """

    def __init__(self, endpoint: Callable[[], tuple[str, int]], *, token: str, tls: TlsFiles | None) -> None:
        self._endpoint = endpoint
        self._token = token
        self._tls = tls
        self._at: tuple[str, int] | None = None
        self._client: RpcClient | None = None
        self._highest = -1
        self._incarnation = 0
        self.mirror = Mirror()

    def reserve(self, node_id: str) -> int:
        """An ordinal that no node of the cluster ever had."""
        ordinal = self._call("members.reserve", {"node_id": node_id})
        if type(ordinal) is not int:
            raise CorruptSegmentError(f"the directory answered {ordinal!r}, which is no number of a node")
        self._highest = max(self._highest, ordinal)
        return ordinal

    def join(self, place: NodePlace, homes: Sequence[str], roles: Mapping[str, Role] | None = None) -> int:
        """The node serves at `place`, and is home of these partitions. Returns its incarnation from now on.

        Args:
            roles: see `DirectoryClient.join`.

        Raises:
            ValueError: the directory knows another node of that ordinal.
        """
        self.follow()
        host, port = self._at or self._endpoint()
        client = DirectoryClient(host, port, token=self._token, tls=self._tls)
        try:
            joined = client.join(
                place.node_id,
                place.session,
                place.host,
                place.port,
                ordinal=place.ordinal,
                incarnation=max(self._incarnation, place.incarnation),
                partitions=[name for name in homes if not self.mirror.is_elsewhere(name, place.ordinal)],
                roles=roles,
                known=None if self.mirror.seen is None else self.mirror.told(),
            )
        finally:
            client.close()
        self._incarnation = joined.incarnation
        return joined.incarnation

    def beat(self, ordinal: int, facts: Mapping[str, Any]) -> BeatAnswer:
        """A sign of life, with what there is to say about the node."""
        answer = self._call(
            "members.beat",
            {
                "ordinal": ordinal,
                "incarnation": self._incarnation,
                "highest": max(self._highest, *self.mirror.places, -1),
                "facts": dict(facts),
                "seen": self.mirror.seen,
            },
            _BEAT_S,
        )
        if answer["news"] is not None:
            self.mirror.take(answer["news"])
        self._highest = max(self._highest, int(answer["highest"]))
        return BeatAnswer(bool(answer["known"]), bool(answer["ended"]))

    def leave(self, ordinal: int) -> None:
        """The node goes, with its rows."""
        self._call("members.leave", {"ordinal": ordinal}, _BEAT_S)

    def end(self) -> None:
        """The session ends for everybody: each agent hears of it with its next sign of life."""
        self._call("members.end", {})

    def facts(self) -> dict[int, dict[str, Any]]:
        """See `Members.facts`."""
        return {int(ordinal): dict(facts) for ordinal, facts in self._call("members.facts", {}).items()}

    def follow(self) -> tuple[str, int]:
        """Where the directory is now; calls go there from now on."""
        at = self._endpoint()
        if at != self._at:
            if self._client is not None:
                self._client.close()
            self._at = at
            self._client = RpcClient(*at, token=self._token, tls=self._tls, node=f"the directory at {at[0]}:{at[1]}")
        return at

    def close(self) -> None:
        """Closes the connection."""
        if self._client is not None:
            self._client.close()

    def _call(self, method: str, args: Mapping[str, Any], within_s: float = _CALL_S) -> Any:
        if self._client is None:
            self.follow()
        assert self._client is not None  # narrowing
        return self._client.call(method, args, until_s=time.monotonic() + within_s)
