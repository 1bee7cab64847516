"""A node's part in the checkpoints of its cluster. Any process leads one, see `client.cluster_checkpoints`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from transferqueue.checkpoint.node_load import bring
from transferqueue.checkpoint.node_save import NodeSave
from transferqueue.errors import NodeUnreachableError
from transferqueue.node_service.home_calls import names_of
from transferqueue.nodes.payload import PayloadStore
from transferqueue.nodes.rpc_server import Call
from transferqueue.storage.loaded_sessions import noting_loaded_sessions

if TYPE_CHECKING:
    from transferqueue.checkpoint.incoming import Incoming
    from transferqueue.node_service.discards import Discards
    from transferqueue.storage.attachment import Attachment

# Of a save or load that its leader says no word about: then it died, and what is held for it goes.
IDLE_S = 60.0


class CheckpointCalls:
    """Handlers of one agent. Thread-safe.

    Args:
        attachment: of the node.
        ordinal: of the node.
        payload: of the node.
        discards: of the node; what goes waits while a save or load is under way.
        allow_pickle: whether what others load here may hold pickles.
        names_only: whether partitions may only name payload, as those do that are kept on two nodes.
    """

    def __init__(
        self,
        attachment: Attachment,
        ordinal: int,
        payload: PayloadStore,
        discards: Discards,
        *,
        allow_pickle: bool,
        names_only: bool = False,
    ) -> None:
        self._attachment = attachment
        self._ordinal = ordinal
        self._payload = payload
        self._discards = discards
        self._allow_pickle = allow_pickle
        self._names_only = names_only
        self._guard = threading.Lock()
        self._shares: dict[str, _Share] = {}

    def handlers(self) -> dict[str, Callable[[Call], Any]]:
        """By name of the call."""
        return {
            "checkpoint.begin_save": self._begin_save,
            "checkpoint.look": self._look,
            "checkpoint.refuse_lost": self._refuse_lost,
            "checkpoint.write": self._write,
            "checkpoint.begin_load": self._begin_load,
            "checkpoint.bring": self._bring,
            "checkpoint.switch": self._switch,
            "checkpoint.end": self._end,
        }

    def stop(self) -> None:
        """Ends all of them. Idempotent."""
        for key in list(self._shares):
            self._finish(key)

    def _begin_save(self, call: Call) -> None:
        key = str(call.args["id"])
        if key not in self._shares:
            self._add(key, _Share(NodeSave(self._attachment.store, self._ordinal, str(call.args["directory"]), key)))

    def _look(self, call: Call) -> Any:
        with self._use(call) as share:
            return share.node_save.look()

    def _refuse_lost(self, call: Call) -> None:
        with self._use(call) as share:
            share.node_save.refuse_lost(names_of(call))

    def _write(self, call: Call) -> Any:
        with self._use(call) as share:
            parts, files, spent = share.node_save.write(names_of(call))
        return {
            "parts": [[part.kind, part.ordinal, part.partitions, part.rows, part.payload_nbytes] for part in parts],
            "files": {name: [facts.nbytes, facts.xxh3_128] for name, facts in files.items()},
            "spent": {str(ordinal): end for ordinal, end in spent.items()},
        }

    def _begin_load(self, call: Call) -> Any:
        """Returns as many new names as were asked for: first and count of stretches, one after another."""
        key = str(call.args["id"])
        if key not in self._shares:
            self._add(key, _Share())
        return self._payload.new_names(int(call.args["names"]), int(call.args["spent"])).reshape(-1)

    def _bring(self, call: Call) -> None:
        args = call.args
        with self._use(call) as share:
            if share.incoming is not None:
                return
            incoming = bring(
                self._attachment.store,
                str(args["directory"]),
                str(args["checksum"]),
                ordinal=self._ordinal,
                partitions={str(prefix): list(names) for prefix, names in args["partitions"].items()},
                payload=list(args["payload"]),
                old_names=_pairs(args["old_names"]),
                new_names=_pairs(args["new_names"]),
                next_row=int(args["next_row"]),
                allow_pickle=bool(args["allow_pickle"]) and self._allow_pickle,
            )
            if self._names_only and not incoming.names_only():
                incoming.drop()
                raise NotImplementedError(
                    "the checkpoint was saved with cluster.replicas=1, and this session keeps rows on two nodes: load "
                    "it in a session with one copy, or save it in one with two"
                )
            share.incoming = incoming

    def _switch(self, call: Call) -> None:
        with self._use(call) as share:
            if share.switched:
                return
            assert share.incoming is not None  # narrowing: brought before
            share.incoming.switch(noting_loaded_sessions(self._attachment.paths, tuple(call.args["sessions"])))
            share.switched = True

    def _end(self, call: Call) -> None:
        self._finish(str(call.args["id"]))

    def _add(self, key: str, share: _Share) -> None:
        self._discards.hold()
        with self._guard:
            self._shares[key] = share
        share.end_when_idle(partial(self._finish, key))

    @contextmanager
    def _use(self, call: Call) -> Iterator[_Share]:
        key = str(call.args["id"])
        with self._guard:
            share = self._shares.get(key)
        if share is None:
            raise self._unknown()
        with share.guard:
            if share.ended:
                raise self._unknown()
            share.wake()
            try:
                yield share
            finally:
                share.end_when_idle(partial(self._finish, key))

    def _unknown(self) -> NodeUnreachableError:
        return NodeUnreachableError(
            f"node {self._ordinal} knows nothing of this save or load: its agent was started again meanwhile, or the "
            f"process that leads it said nothing for {IDLE_S:.0f} s",
            node=str(self._ordinal),
        )

    def _finish(self, key: str) -> None:
        with self._guard:
            share = self._shares.pop(key, None)
        if share is not None:
            try:
                share.end()
            finally:
                self._discards.end_hold()


class _Share:
    """One save or load on this node. What is done for it is done under `guard`."""

    def __init__(self, save: NodeSave | None = None) -> None:
        self._save = save
        self._timer: threading.Timer | None = None
        self.incoming: Incoming | None = None
        self.switched = False
        self.ended = False
        self.guard = threading.Lock()

    @property
    def node_save(self) -> NodeSave:
        if self._save is None:
            raise ValueError("a load was asked for what saves do")
        return self._save

    def end_when_idle(self, end: Callable[[], None]) -> None:
        self._timer = threading.Timer(IDLE_S, end)
        self._timer.daemon = True
        self._timer.start()

    def wake(self) -> None:
        """It is not idle."""
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        if self._save is not None:
            self._save.stop()  # what is being written ends
        with self.guard:
            self.ended = True
            self.wake()
            if self._save is not None:
                self._save.end()
            if self.incoming is not None and not self.switched:
                self.incoming.drop()


def _pairs(flat: Any) -> Any:
    """int64 [n, 2] of what travels as int64 [2 n]."""
    if not isinstance(flat, np.ndarray) or flat.dtype != np.int64 or flat.ndim != 1 or len(flat) % 2:
        raise TypeError("stretches of names are pairs of int64")
    return flat.reshape(-1, 2)
