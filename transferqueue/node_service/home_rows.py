"""Puts of other nodes into partitions of this home, and where the payload of its rows is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from transferqueue.client.core import as_indexes
from transferqueue.client.keyed import KeyedRead
from transferqueue.client.limits import NothingPut
from transferqueue.client.node_client import NodeClient
from transferqueue.codec import STORED
from transferqueue.errors import SchemaMismatchError, TransferQueueError
from transferqueue.node_service.home_calls import HomeCalls, names_of, until_of
from transferqueue.nodes.companions import add_companions
from transferqueue.nodes.link import NodeLink
from transferqueue.nodes.located import Group, Located
from transferqueue.nodes.names import Names
from transferqueue.nodes.naming import BlockNames, groups_of, nodes_of
from transferqueue.nodes.published import Published
from transferqueue.nodes.rpc_server import Call
from transferqueue.nodes.stubs import StubPlan
from transferqueue.nodes.transport.payload_streams import describe
from transferqueue.tag_maps import TagDecoder
from transferqueue.waiting import deadline, is_over, run_steps, version_of, wait_until

if TYPE_CHECKING:
    from transferqueue._native import PublishResult, RequestRecord, Resolved, Store
    from transferqueue.node_service.replication import Replication


class HomeRowCalls(HomeCalls):
    """Part of `HomeService`.

    Args:
        block_names: gives names to rows that lie here as such.
        tell_named: (partition, names) that a put made it name.
        note_reader: the ordinal of a node that locates rows.
        allow_pickle: whether tags of other nodes may hold pickles.
    """

    def __init__(
        self,
        store: Store,
        client: NodeClient,
        link: NodeLink,
        block_names: BlockNames,
        tell_named: Callable[[str, Names], None],
        note_reader: Callable[[int], None],
        *,
        allow_pickle: bool,
        replication: Replication | None = None,
    ) -> None:
        super().__init__(store, client, link, replication)
        self._name_block = block_names
        self._tell_named = tell_named
        self._note_reader = note_reader
        self._foreign_tags = TagDecoder(allow_pickle=allow_pickle)

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
            if self._replication is not None:
                self._replication.keep(partition, names_of(call), list(args["schemas"]), until_of(call))
            plan, may_drop = StubPlan(names_of(call), args["schemas"]), bool(args["drop"])
            steps = self.client._stored(
                plan, args["timeout"], partition, may_drop=may_drop, elsewhere_nbytes=int(args["nbytes"]), **rows
            )
        done: PublishResult | NothingPut | RequestRecord = self._once(
            call, partial(run_steps, self._store, steps), lambda record: record
        )
        if args["names"] is not None and len(done.indexes):
            self._tell_named(partition, names_of(call))
        made = Published(np.array(done.indexes, dtype=np.int64), int(done.shed_rows))
        if "keys" in rows and len(done.indexes):
            answer = self.client._kv_meta(list(rows["keys"]), partition, done)  # type: ignore[arg-type]  # its indexes
            made.fields, made.tags = list(answer.fields or []), [dict(tags) for tags in answer.tags]
        return made

    def _locate(self, call: Call) -> Located | None:
        args, client, store = call.args, self.client, self._store
        partition, timeout = self._at_home(call), args["timeout"]
        self._note_reader(int(args["reader"]))
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
            groups = groups_of(resolved, names, self._name_block)
            if args.get("describe"):
                _describe(resolved, groups)
            add_companions(store, partition, resolved, groups, self._name_block)
        finally:
            resolved.release()
        return Located(partition, self._link.ordinal, np.array(resolved.indexes), list(names), groups)

    def _merge_tags(self, call: Call) -> None:
        partition, tags = self._at_home(call), list(call.args["tags"])
        self._foreign_tags.decode_all(tags)  # refuses what needs pickle
        merge = partial(self._store.merge_tags, partition, as_indexes(call.args["indexes"]), tags)
        self._once(call, merge, lambda _: None)

    def _status(self, call: Call) -> Any:
        return self._store.production(self._at_home(call), list(call.args["fields"]), as_indexes(call.args["indexes"]))[
            2
        ]

    def _nodes(self, call: Call) -> Any:
        """int64 [rows]: the node that has most of each row's fields; -1: it has none of them."""
        partition, indexes = self._at_home(call), as_indexes(call.args["indexes"])
        resolved = self._store.resolve(partition, indexes=indexes, fields=list(call.args["fields"]))
        try:
            return nodes_of(resolved, self._link.ordinal)
        finally:
            resolved.release()

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


def _describe(resolved: Resolved, groups: Sequence[Group]) -> None:
    """What the reader would ask next, of rows that lie here as such."""
    position = {name: number for number, name in enumerate(resolved.fields)}
    for group in groups:
        if len(group.home_blocks) and int(group.home_blocks.min()) >= 0:
            # Rows that cannot be sent may be there already; if they are not, the pull says what is wrong with them.
            with contextlib.suppress(SchemaMismatchError):
                group.described = describe(resolved, [position[name] for name in group.fields])


class _Unchanged(TransferQueueError):
    """Never raised: the last look is behind the deadline, and gives the version."""
