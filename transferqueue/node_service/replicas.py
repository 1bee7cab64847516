"""The parts of ``cluster.replicas=2`` in one agent, and the thread that looks after them."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from transferqueue.client.core import Housekeeping
from transferqueue.client.node_client import NodeClient
from transferqueue.config import Config
from transferqueue.errors import ClosedError, SessionNotFoundError, TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.node_service.followers import Directory
from transferqueue.node_service.keeper import Keeper
from transferqueue.node_service.replication import Replication
from transferqueue.node_service.standby import Standby
from transferqueue.nodes.fetching import Fetcher
from transferqueue.nodes.link import NodeLink
from transferqueue.nodes.names import Names, ordinals_of
from transferqueue.nodes.payload import PayloadStore
from transferqueue.nodes.replica_figures import ReplicaFigures, write_figures
from transferqueue.nodes.rpc_server import Call, Handler
from transferqueue.storage.attachment import Attachment
from transferqueue.waiting import run_steps

if TYPE_CHECKING:
    from transferqueue._native import Reservation
    from transferqueue.node_service.references import References

_log = get_logger("nodes")
_CALL_S = 10.0
_HEAL_S = 2.0
_HEAL_ROWS = 2048
_LOOK_AGAIN_S = 30.0
_ROOM_S = 2.0


class Replicas:
    """Of one agent.

    Args:
        attachment, config, service: of the node.
        link, fetcher, payload, references: of the agent.

    Attributes:
        replication: see there.
        under_replicated: rows of payload of which there is one copy, at the last look; see `heal`.
    """

    def __init__(
        self,
        attachment: Attachment,
        config: Config,
        service: Housekeeping,
        link: NodeLink,
        fetcher: Fetcher,
        payload: PayloadStore,
        references: References,
    ) -> None:
        self._link = link
        self._payload = payload
        self._references = references
        store = attachment.store
        room = NodeClient(attachment, config, service, link.cluster, link.ordinal)

        def reserve(nbytes: int) -> Reservation:
            return run_steps(store, room._reserve(nbytes, _ROOM_S))

        keeper = Keeper(store, payload, fetcher, link, references)
        file = attachment.cluster_now()
        lost_after_s = config.cluster.lost_after_s if file is None else file.options.lost_after_s
        self._lost_after_s = lost_after_s
        self.replication = Replication(
            store, link, cast(Directory, link.directory), keeper, Standby(store, keeper, reserve), lost_after_s
        )
        self.under_replicated = 0
        self._healed_s = 0.0
        self._healed: dict[str, tuple[Any, float]] = {}
        self._lacking: dict[str, int] = {}
        self._paths = attachment.paths
        self._said: ReplicaFigures | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def around(self, handlers: Mapping[str, Handler]) -> dict[str, Handler]:
        """The handlers of a home, which look again whether it is one before they answer, and those of a standby."""

        def checked(handler: Handler, call: Call) -> Any:
            answer = handler(call)
            partition = call.args.get("partition")
            if partition is not None:
                self.replication.at_home(partition)
            return answer

        def replacing(handler: Handler, call: Call) -> Any:
            self.replication.let_go()
            answer = handler(call)
            self.replication.standby.forget_all()
            return answer

        def replaced(handler: Handler, call: Call) -> Any:
            answer = handler(call)
            self.replication.hold_on()
            return answer

        mine = {
            name: functools.partial(checked, handler) if name.startswith(("home.", "rows.")) else handler
            for name, handler in handlers.items()
        }
        around = {"checkpoint.switch": replacing, "checkpoint.end": replaced}
        mine |= {name: functools.partial(wrap, handlers[name]) for name, wrap in around.items()}
        return {**mine, **self.replication.standby.handlers()}

    def facts(self) -> dict[str, int | None]:
        """What there is one copy of: rows of payload, None while not known, and partitions that nobody follows."""
        figures = self._figures()
        return {
            "single_rows": figures.under_replicated_rows,
            "single_partitions": figures.under_replicated_partitions,
        }

    def _figures(self) -> ReplicaFigures:
        alone = sum(standby is None for standby in self.replication.homes().values())
        known = self._healed_s > self.replication.changed_s
        return ReplicaFigures(self.under_replicated if known else None, alone)

    def _say(self) -> None:
        """To who looks at the session."""
        figures = self._figures()
        if figures != self._said:
            write_figures(self._paths, figures)
            self._said = figures

    def start(self) -> None:
        """Starts the thread."""
        self._thread = threading.Thread(target=self._run, name="transferqueue-replicas", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread. Idempotent."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(2.0)  # it may be asking nodes that end at this moment, too

    def heal(self) -> None:
        """Looks at what the partitions here name, and makes the second copies that are missing: the home keeps what
        other nodes put, the standby what the home put, and both what a lost node put. Some of it at a time."""
        began_s = time.monotonic()
        living = set(self._link.alive())
        lacking: dict[str, int] = {}
        for partition, standby in self.replication.homes().items():
            seen = self._references.of(partition)
            state = (seen.version, standby, frozenset(living))
            known, looked_s = self._healed.get(partition, (None, 0.0))
            if known == state and time.monotonic() - looked_s < _LOOK_AGAIN_S:
                continue
            try:
                lacking[partition] = self._heal(seen.names, standby, living)
            except (TransferQueueError, OSError) as error:
                lacking[partition] = self._lacking.get(partition, len(seen.names))
                _log.info("second copies of partition %r are tried again: %s", partition, error)
            if not lacking[partition]:
                self._healed[partition] = (state, time.monotonic())
        self._lacking = lacking
        self._healed = {name: entry for name, entry in self._healed.items() if self.replication.is_mine(name)}
        self.under_replicated = sum(lacking.values())
        self._healed_s = began_s

    def _heal(self, names: Names, standby: int | None, living: set[int]) -> int:
        """Rows that have one copy after it."""
        if not len(names) or len(living) < 2:
            return len(names)
        keeper, until_s = self.replication.keeper, time.monotonic() + _CALL_S
        ordinals = ordinals_of(names)
        here = names[ordinals != self._link.ordinal]
        here = here[keeper.lacks(here)]
        there = names[(ordinals == self._link.ordinal) | ~np.isin(ordinals, list(living))]
        if standby is not None and len(there):
            there = there[np.asarray(self._link.call(standby, "standby.lacks", {"names": there}, until_s=until_s))]
        missing = len(np.union1d(here, there))
        if len(here):
            keeper.keep(here[:_HEAL_ROWS], None, until_s)
        if standby is not None and len(there):
            args = {"names": there[:_HEAL_ROWS], "fields": None}
            self._link.call(standby, "standby.keep", args, until_s=until_s)
        return missing

    def _run(self) -> None:
        look_s = min(1.0, self._lost_after_s / 4)
        heal_s = time.monotonic() + _HEAL_S
        self._try(self.replication.look)
        while not self._stopping.wait(look_s):
            if not self._try(self.replication.look):
                return
            began_s = time.monotonic()
            if began_s >= heal_s:
                if not self._try(self.heal):
                    return
                now_s = time.monotonic()
                heal_s = now_s + max(_HEAL_S, 10 * (now_s - began_s))
            if not self._try(self._say):
                return

    def _try(self, step: Callable[[], None]) -> bool:
        """False: the session has ended."""
        try:
            step()
        except (SessionNotFoundError, ClosedError):
            return False
        except (TransferQueueError, OSError, MemoryError) as error:
            _log.info("looking after second copies is tried again: %s", error)
        return True
