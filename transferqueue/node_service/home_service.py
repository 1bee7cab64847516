"""The calls that a node answers: of partitions whose home it is, and about payload that it keeps."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from transferqueue._native import claim_clock
from transferqueue.claims import Claim
from transferqueue.client.core import Housekeeping, as_indexes, check_names
from transferqueue.client.node_client import NodeClient
from transferqueue.client.routes import CLAIM, OWN, ROUTED
from transferqueue.client.row_meta import batch_meta
from transferqueue.config import Config
from transferqueue.errors import TransferQueueError
from transferqueue.metadata import FieldSchema
from transferqueue.node_service.block_names import BlockNames
from transferqueue.node_service.checkpoint_calls import CheckpointCalls
from transferqueue.node_service.home_calls import names_of
from transferqueue.node_service.home_rows import HomeRowCalls
from transferqueue.node_service.references import References
from transferqueue.node_service.remote_claims import RemoteClaims, alive_owners
from transferqueue.node_service.replicas import Replicas
from transferqueue.node_service.upkeep import Upkeep
from transferqueue.nodes.fetching import Fetcher
from transferqueue.nodes.link import NodeLink
from transferqueue.nodes.payload import PayloadStore
from transferqueue.nodes.rpc_server import Call
from transferqueue.storage.attachment import Attachment

if TYPE_CHECKING:
    from transferqueue._native import RequestRecord

Handler = Callable[[Call], Any]


class HomeService(HomeRowCalls):
    """What the agent of a node does for the others.

    Args:
        attachment, config, service: of the node-session.
        link: of the agent.
        prefetch: `ClusterClient._bring_here` of a client of the node; None: it brings nothing here for others.
        fetcher: of that client; what is kept on two nodes needs it.

    Attributes:
        client: of the node's own store.
        upkeep: its thread runs between `start` and `stop`.
    """

    def __init__(
        self,
        attachment: Attachment,
        config: Config,
        service: Housekeeping,
        link: NodeLink,
        prefetch: Callable[..., int] | None = None,
        fetcher: Fetcher | None = None,
    ) -> None:
        store = attachment.store
        self._prefetch = prefetch
        self._payload = PayloadStore(store, link.ordinal)
        self._references = References(store)
        self._block_names = BlockNames(store)
        self._claims = RemoteClaims(store, link)
        self.replicas: Replicas | None = None
        if link.replicated and fetcher is not None:
            self.replicas = Replicas(attachment, config, service, link, fetcher, self._payload, self._references)
        replication = None if self.replicas is None else self.replicas.replication
        self.upkeep = Upkeep(self._payload, self._references, self._block_names, self._claims, link, replication)
        self._checkpoints = CheckpointCalls(
            attachment,
            link.ordinal,
            self._payload,
            self.upkeep.discards,
            allow_pickle=config.allow_pickle is True,
            names_only=self.replicas is not None,
        )
        super().__init__(
            store,
            NodeClient(attachment, config, service, link.cluster, link.ordinal),
            link,
            self._block_names.first_name,
            self.upkeep.tell,
            self.upkeep.note_reader,
            allow_pickle=config.allow_pickle is True,
            replication=replication,
        )

    def handlers(self) -> dict[str, Handler]:
        """By name of the call."""
        handlers = {
            "home.call": self._call,
            "home.rows": self._rows_by_state,
            "home.rules": lambda call: self._store.limit_rules(),
            "rows.publish": self._publish,
            "rows.locate": self._locate,
            "rows.changed": self._changed,
            "rows.merge_tags": self._merge_tags,
            "rows.progress": self._progress,
            "rows.status": self._status,
            "rows.nodes": self._nodes,
            "rows.tags": self._tags,
            "payload.alive": self._alive,
            "payload.release": self._release,
            **({} if self._prefetch is None else {"payload.prefetch": self._prefetch_here}),
            "clients.alive": lambda call: alive_owners(self._store, list(call.args["owners"])),
            "names.named": lambda call: self._references.named(names_of(call)),
            **self._checkpoints.handlers(),
        }
        return handlers if self.replicas is None else self.replicas.around(handlers)

    def start(self) -> None:
        """Takes over the rules for limits that other nodes have, and starts to free what nobody names."""
        for ordinal in self._link.others():
            with contextlib.suppress(TransferQueueError):
                for pattern, settings in self._link.call(ordinal, "home.rules", {}, until_s=self._link.until(None)):
                    self._store.set_limits(pattern, settings)
                break
        self.upkeep.start()
        if self.replicas is not None:
            self.replicas.start()

    def stop(self) -> None:
        """Idempotent."""
        if self.replicas is not None:
            self.replicas.stop()
        self.upkeep.stop()
        self._checkpoints.stop()
        self.client.close()

    def _call(self, call: Call) -> Any:
        name, arguments = call.args["name"], dict(call.args["arguments"])
        route = ROUTED.get(name)
        if route is None or (route.by == OWN and name not in ("get_partition_list", "kv_list", "set_limits")):
            raise NotImplementedError(f"no call {str(name)[:80]!r} is made at a home")
        if call.args["partition"] is not None:
            self._at_home(call)
        elif route.by != OWN:
            raise ValueError(f"{name} is made at the home of a partition")
        made = partial(getattr(self.client, name), **arguments)
        answer = self._once(call, made, partial(self._told_again, name, arguments)) if route.changes else made()
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

    def _told_again(self, name: str, arguments: Mapping[str, Any], done: RequestRecord) -> Any:
        """The answer of a call that was made before."""
        if name == "kv_retrieve_meta":
            return self.client.kv_retrieve_meta(**arguments)  # the rows are there
        if name == "extend":
            arguments["claim"].deadline_s = done.deadline_s
            return None
        if name not in ("get_meta", "claim"):
            return None if name != "reset_consumption" else True
        partition = arguments["partition_id"]
        if arguments.get("mode") == "insert":
            types = {field: FieldSchema() for field in check_names(arguments["data_fields"], "data_fields")}
            return batch_meta(self.client.session, partition, as_indexes(done.indexes), types, ready=False)
        fields = check_names(arguments["data_fields" if name == "get_meta" else "fields"], "fields")
        meta = self.client._meta_of_rows(partition, as_indexes(done.indexes), fields)
        if name == "get_meta":
            return meta
        lease_s = float(arguments["lease_s"])
        return Claim(meta, arguments["task_name"], partition, done.fencing, lease_s, done.deadline_s)

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

    def _alive(self, call: Call) -> Any:
        names = names_of(call)
        return self._payload.have(names) | self._block_names.known(names)

    def _prefetch_here(self, call: Call) -> int:
        assert self._prefetch is not None  # narrowing: else there is no such handler
        args = call.args
        return self._prefetch(args["metadata"], list(args["fields"]), args["timeout"], bool(args["together"]))

    def _release(self, call: Call) -> None:
        names = names_of(call)
        if self.replicas is not None:
            self.replicas.replication.keeper.forget(names)
        self.upkeep.discards.discard(names)
