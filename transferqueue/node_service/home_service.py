"""The calls that a node answers: of partitions whose home it is, and about payload that it keeps."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from transferqueue._native import claim_clock
from transferqueue.allocation import give_up
from transferqueue.claims import Claim
from transferqueue.client.core import Housekeeping, as_indexes
from transferqueue.client.keyed import KeyedRead
from transferqueue.client.limits import NothingPut
from transferqueue.client.node_client import NodeClient
from transferqueue.client.routes import CLAIM, OWN, ROUTED
from transferqueue.codec import STORED
from transferqueue.config import Config
from transferqueue.errors import TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.node_service.block_names import BlockNames
from transferqueue.node_service.references import References
from transferqueue.node_service.remote_claims import RemoteClaims, alive_owners
from transferqueue.node_service.upkeep import Upkeep
from transferqueue.nodes.errors import NotHomeError
from transferqueue.nodes.link import NodeLink
from transferqueue.nodes.located import Located
from transferqueue.nodes.naming import groups_of
from transferqueue.nodes.payload import PayloadStore
from transferqueue.nodes.published import Published
from transferqueue.nodes.rpc_server import Call
from transferqueue.nodes.stubs import StubPlan
from transferqueue.storage.attachment import Attachment
from transferqueue.tag_maps import TagDecoder
from transferqueue.waiting import Steps, deadline, is_over, lock_timeout, run_steps, version_of, wait_until

if TYPE_CHECKING:
    from transferqueue._native import PublishResult, Reservation

_log = get_logger("nodes")
Handler = Callable[[Call], Any]


class HomeService:
    """What the agent of a node does for the others.

    Args:
        attachment, config, service: of the node-session.
        link: of the agent.

    Attributes:
        client: of the node's own store.
        upkeep: its thread runs between `start` and `stop`.
    """

    def __init__(self, attachment: Attachment, config: Config, service: Housekeeping, link: NodeLink) -> None:
        self._store = attachment.store
        self._config = config
        self._link = link
        self.client = NodeClient(attachment, config, service, link.cluster, link.ordinal)
        self._payload = PayloadStore(attachment.store, link.ordinal)
        self._references = References(attachment.store)
        self._block_names = BlockNames(attachment.store)
        self._claims = RemoteClaims(attachment.store, link)
        self.upkeep = Upkeep(self._payload, self._references, self._block_names, self._claims, link)
        self._foreign_tags = TagDecoder(allow_pickle=config.allow_pickle is True)

    def handlers(self) -> dict[str, Handler]:
        """By name of the call."""
        return {
            "home.call": self._call,
            "home.rows": self._rows_by_state,
            "home.rules": lambda call: self._store.limit_rules(),
            "rows.publish": self._publish,
            "rows.locate": self._locate,
            "rows.changed": self._changed,
            "rows.merge_tags": self._merge_tags,
            "rows.progress": self._progress,
            "rows.status": self._status,
            "rows.tags": self._tags,
            "payload.alive": self._alive,
            "payload.release": self._release,
            "clients.alive": lambda call: alive_owners(self._store, list(call.args["owners"])),
            "names.named": lambda call: self._references.named(_names(call)),
        }

    def start(self) -> None:
        """Takes over the rules for limits that other nodes have, and starts to free what nobody names."""
        for ordinal in self._link.others():
            with contextlib.suppress(TransferQueueError):
                for pattern, settings in self._link.call(ordinal, "home.rules", {}, until_s=self._link.until(None)):
                    self._store.set_limits(pattern, settings)
                break
        self.upkeep.start()

    def stop(self) -> None:
        """Idempotent."""
        self.upkeep.stop()
        self.client.close()

    def _at_home(self, call: Call) -> str:
        """The partition of the call, whose home this node must be."""
        partition = call.args["partition"]
        if not self._link.is_home(partition):
            self._link.forget_home(partition)
            if not self._link.is_home(partition):
                raise NotHomeError(
                    f"node {self._link.ordinal} is not the home of partition {partition!r}",
                    partition_id=partition,
                    ordinal=self._link.ordinal,
                )
        return str(partition)

    # Calls without payload.

    def _call(self, call: Call) -> Any:
        name, arguments = call.args["name"], dict(call.args["arguments"])
        route = ROUTED.get(name)
        if route is None or (route.by == OWN and name not in ("get_partition_list", "kv_list", "set_limits")):
            raise NotImplementedError(f"no call {str(name)[:80]!r} is made at a home")
        if call.args["partition"] is not None:
            self._at_home(call)
        elif route.by != OWN:
            raise ValueError(f"{name} is made at the home of a partition")
        answer = getattr(self.client, name)(**arguments)
        if route.by == CLAIM:
            self._note_claim(name, arguments["claim"], call)
        if isinstance(answer, Claim):
            self._note_claim(name, answer, call)
            # What is left of it, since clocks of nodes have nothing to do with each other.
            left_s = answer.deadline_s - claim_clock() if answer else 0.0
            return dataclasses.replace(answer, deadline_s=left_s)
        if name == "extend":
            return arguments["claim"].deadline_s - claim_clock()
        return None if name == "coalesce" else answer

    def _note_claim(self, name: str, claim: Claim, call: Call) -> None:
        if not claim:
            return
        which = claim.partition_id, claim.task_name, claim.fencing
        if name in ("ack", "nack"):
            self._claims.forget(*which)
        else:
            self._claims.note(*which, call.args["claimant"], claim.lease_s)

    def _rows_by_state(self, call: Call) -> Any:
        stats = self.client.stats(self._at_home(call))
        return stats.rows, dict(stats.limits)

    def _merge_tags(self, call: Call) -> None:
        partition, tags = self._at_home(call), list(call.args["tags"])
        self._foreign_tags.decode_all(tags)  # refuses what needs pickle
        self._store.merge_tags(partition, as_indexes(call.args["indexes"]), tags)

    def _status(self, call: Call) -> Any:
        return self._store.production(self._at_home(call), list(call.args["fields"]), as_indexes(call.args["indexes"]))[
            2
        ]

    def _tags(self, call: Call) -> Any:
        return self.client._tags_of(self._at_home(call), as_indexes(call.args["indexes"]))

    def _progress(self, call: Call) -> Any:
        partition, args = self._at_home(call), call.args
        if not args["fields"]:
            return [self._store.consumed_rows(partition, args["task"]), 0, False]
        return list(astuple(self.client._progress(partition, args["task"], list(args["fields"]), args["sampling"])))

    def _changed(self, call: Call) -> int:
        """The partition's version, once it is another one than the caller saw, or after a while."""
        partition, seen = self._at_home(call), call.args["seen"]
        until_s = deadline(call.args["timeout"])

        def look() -> int | None:
            version = version_of(self._store, partition)
            return None if version == seen and not is_over(until_s) else version

        return run_steps(self._store, wait_until(self._store, partition, until_s, look, _Unchanged))

    # Puts.

    def _publish(self, call: Call) -> Published:
        args, partition = call.args, self._at_home(call)
        rows: dict[str, Any] = {
            name: value for name, value in args["rows"].items() if name in ("count", "indexes", "keys", "tags")
        }
        if rows.get("tags"):
            self._foreign_tags.decode_all(rows["tags"])  # refuses what needs pickle
        if "indexes" in rows:
            rows["indexes"] = as_indexes(rows["indexes"])
        if args["names"] is None:
            steps = self.client._named(args["timeout"], partition, **rows)
        else:
            steps = self._stubs(partition, _names(call), args, rows)
        done = run_steps(self._store, steps)
        if args["names"] is not None and len(done.indexes):
            self.upkeep.tell(partition, _names(call))
        made = Published(np.array(done.indexes, dtype=np.int64), int(done.shed_rows))
        if "keys" in rows and len(done.indexes):
            answer = self.client._kv_meta(list(rows["keys"]), partition, done)
            made.fields, made.tags = list(answer.fields or []), [dict(tags) for tags in answer.tags]
        return made

    def _stubs(
        self, partition: str, names: Any, args: Mapping[str, Any], rows: dict[str, Any]
    ) -> Steps[PublishResult | NothingPut]:
        """Rows of another node's payload, within the partition's limits. What `max_bytes` counts of them are their
        stubs."""
        plan = StubPlan(names, args["schemas"])
        client, store, timeout = self.client, self._store, args["timeout"]
        reservation: Reservation | None = None

        def attempt(left_s: float | None) -> Steps[PublishResult]:
            nonlocal reservation
            until_s = client._put_deadline(left_s)
            if reservation is None:
                reservation = yield from client._reserve(plan.nbytes, left_s, ahead=True)
                plan.write(reservation)
            return store.publish(
                partition, reservation=reservation, fields=plan.layouts, lock_timeout_s=lock_timeout(until_s), **rows
            )

        try:
            done = yield from client._within_limits(
                partition, timeout, attempt, nbytes=plan.nbytes, may_drop=bool(args["drop"]), **rows
            )
        except BaseException:
            if reservation is not None:
                give_up(reservation)
            raise
        if reservation is not None and isinstance(done, NothingPut):
            give_up(reservation)
        return done

    # Reads.

    def _locate(self, call: Call) -> Located | None:
        args, client, store = call.args, self.client, self._store
        partition, timeout = self._at_home(call), args["timeout"]
        fields = None if args["fields"] is None else list(args["fields"])
        if "indexes" in args:
            indexes, names = as_indexes(args["indexes"]), fields or []
            if timeout is None:
                resolved = client._look(partition, indexes, names, raise_missing=True)
            else:
                resolved = run_steps(
                    store,
                    wait_until(
                        store,
                        partition,
                        deadline(timeout),
                        partial(client._look, partition, indexes, names, raise_missing=False),
                        partial(client._read_timeout, partition, indexes, names, timeout),
                    ),
                )
        else:
            how = KeyedRead(args["missing"], args["missing_fields"], None, timeout, None, STORED)
            found = run_steps(store, client._resolve_some(partition, list(args["keys"]), fields, how))
            if found is None:
                return None
            resolved, names = found
        assert resolved is not None  # narrowing: it raised
        try:
            groups = groups_of(resolved, names, self._block_names.first_name)
        finally:
            resolved.release()
        return Located(partition, self._link.ordinal, np.array(resolved.indexes), list(names), groups)

    # Payload.

    def _alive(self, call: Call) -> Any:
        names = _names(call)
        return self._payload.have(names) | self._block_names.known(names)

    def _release(self, call: Call) -> None:
        self._payload.discard(_names(call))


class _Unchanged(TransferQueueError):
    """Never raised: the last look is behind the deadline, and gives the version."""


def _names(call: Call) -> Any:
    names = call.args["names"]
    if not isinstance(names, np.ndarray) or names.dtype != np.int64 or names.ndim != 1:
        raise TypeError("names are an array of int64")
    return names
