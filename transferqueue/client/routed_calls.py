"""Calls that move no payload, of a session of several nodes: made at the partition's home, wherever that is.

Their methods are those of `TransferQueueClient`, each behind a look at where its partition's home is; made from the
table in `routes`, so that no call has logic of its own here but those that concern all nodes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from transferqueue._native import claim_clock
from transferqueue.aio import asynchronous
from transferqueue.claims import Claim
from transferqueue.client.client import TransferQueueClient
from transferqueue.client.core import Indexes, as_indexes, check_batch_meta, check_names, check_partition
from transferqueue.client.node_client import NodeClient
from transferqueue.client.routes import CLAIM, METADATA, OWN, ROUTED, Route
from transferqueue.errors import (
    DataLostError,
    NodeUnreachableError,
    StorageFullError,
    TransferQueueError,
    TransferTimeoutError,
)
from transferqueue.metadata import BatchMeta
from transferqueue.nodes.errors import NotHomeError
from transferqueue.nodes.eviction import copies_nbytes
from transferqueue.nodes.link import WAIT_SLICE_S, NodeLink
from transferqueue.nodes.names import is_hidden
from transferqueue.nodes.shared_looks import Turn
from transferqueue.session_stats import Stats
from transferqueue.waiting import Steps, away, blocking, deadline, is_over

T = TypeVar("T")
_MOVES = 5
_ATTEMPT_S = WAIT_SLICE_S + 5.0
_LOOK_S = 12.0


class RoutedCalls(NodeClient):
    """Part of `ClusterClient`."""

    link: NodeLink

    def _home(self, partition: str, *, create: bool) -> Steps[int | None]:
        """Ordinal of the partition's home."""
        if is_hidden(partition):
            raise ValueError(f"{partition[:80]!r} is no partition name: it must not begin with \\x01")
        known = self.link.known_home(partition)
        if known is not None:
            return known
        return (yield from away(functools.partial(self.link.home_of, partition, create=create)))

    def _here(self, steps: Steps[T]) -> Steps[T]:
        """Steps that work on the own node's store."""
        try:  # `naming_full` would be felt in small puts
            return (yield from steps)
        except StorageFullError as error:
            if error.node is not None:
                raise
            raise self.link.full(self.link.ordinal, error) from error

    def _at_home(
        self,
        partition: str,
        home: int,
        method: str,
        args: Mapping[str, Any],
        until_s: float,
        turn: Turn | None = None,
    ) -> Steps[Any]:
        """One call of the home's agent, elsewhere when that is not the home any more."""
        request_id = os.urandom(16)  # where it is made again, at whatever home, it is the same call
        moves = 0
        while moves < _MOVES:
            moves += 1
            # Another node may have taken over, and nobody may be left who says that this one is lost.
            limit_s = min(until_s, time.monotonic() + _LOOK_S) if self.link.replicated else until_s
            call = functools.partial(
                self.link.call,
                *(home, method, args),
                until_s=limit_s,
                request_id=request_id,
                attempt_s=_ATTEMPT_S,
                turn=turn,
            )
            try:
                return (yield from away(call))
            except NodeUnreachableError:
                if limit_s >= until_s:
                    raise
                with contextlib.suppress(NodeUnreachableError):
                    heir = yield from away(functools.partial(self.link.heir_of, partition, home))
                    home = home if heir is None else heir
                moves -= 1  # its deadline ends it
            except NotHomeError:
                self.link.forget_home(partition)
                moved = yield from self._home(partition, create=True)
                assert moved is not None  # narrowing: it was created
                home = moved
            except DataLostError as error:
                if error.rows:
                    raise
                # A load, or a standby that took over, may have given the partition another home since.
                heir = yield from away(functools.partial(self.link.heir_of, partition, home, self.link.until(until_s)))
                if heir is not None:
                    home = heir
                    continue
                raise DataLostError(
                    f"the home of partition {partition!r} is lost, and with it what was known of its rows: "
                    f"{error.message}",
                    partition_id=partition,
                    node=error.node,
                ) from error
        raise DataLostError(
            f"the home of partition {partition!r} cannot be found: nodes and directory contradict each other",
            partition_id=partition,
        )

    def _routed(
        self, name: str, route: Route, arguments: dict[str, Any], local: Callable[..., Steps[Any]]
    ) -> Steps[Any]:
        self._open()
        if route.by == METADATA:
            return (yield from self._by_metadata(name, arguments, local))
        if route.by == CLAIM:
            return (yield from self._by_claim(name, arguments, local))
        partition = check_partition(arguments["partition_id"])
        creates = route.creates and arguments.get("create", True)
        home = yield from self._home(partition, create=creates)
        if home is None or self.link.is_here(home):
            return (yield from self._here(local(**arguments)))
        if isinstance(arguments.get("metadata"), BatchMeta):
            self._check_session(arguments["metadata"])
            arguments["metadata"] = rows_only(arguments["metadata"])
        if not route.waits:
            args = {"name": name, "partition": partition, "arguments": _plain(arguments)}
            try:
                return (yield from self._at_home(partition, home, "home.call", args, self.link.until(None)))
            except DataLostError as error:
                if name != "clear_partition" or error.rows:
                    raise
            # What is cleared went with its home; whoever uses the name from now on gets another.
            yield from away(functools.partial(self.link.give_up, partition, home))
            return None
        return (yield from self._waiting(name, partition, home, arguments))

    def _waiting(self, name: str, partition: str, home: int, arguments: dict[str, Any]) -> Steps[Any]:
        """A call that waits at the home: slice after slice, until it is over or its deadline is."""
        timeout = arguments["timeout"]
        if name == "kv_retrieve_meta" and timeout is None:
            timeout = self._config.put.timeout_s
        until_s = deadline(timeout)
        while True:
            args = {
                "name": name,
                "partition": partition,
                "arguments": _plain({**arguments, "timeout": self.link.wait_slice(until_s)}),
                "claimant": self._claimant(),
            }
            try:
                answer = yield from self._at_home(partition, home, "home.call", args, self.link.until(until_s))
            except TransferTimeoutError as error:
                if isinstance(error, NodeUnreachableError) or is_over(until_s):
                    raise retitled(error, timeout) from None
                continue
            if isinstance(answer, Claim):
                if not answer and not is_over(until_s):
                    continue
                answer.deadline_s = claim_clock() + answer.deadline_s if answer else 0.0
            return answer

    def _by_metadata(self, name: str, arguments: dict[str, Any], local: Callable[..., Steps[Any]]) -> Steps[Any]:
        what = "meta" if "meta" in arguments else "metadata"
        metadata = check_batch_meta(arguments[what], name)
        self._check_session(metadata)
        rest = {key: value for key, value in arguments.items() if key != what}
        if name == "coalesce" and rest.get("fields") is None:
            rest["fields"] = metadata.field_names
            if not rest["fields"]:
                return metadata
        node = rest.pop("node", None)
        here: list[BatchMeta] = []
        elsewhere: list[tuple[str, int, BatchMeta]] = []
        for piece in metadata.chunk_by_partition() if metadata.size else []:
            partition = piece.partition_names[0]
            home = yield from self._home(partition, create=False)
            if home is None or self.link.is_here(home):
                here.append(piece)
            else:
                elsewhere.append((partition, home, piece))
        for piece in here:
            yield from self._here(local(**{what: piece}, **rest))
        for partition, home, piece in elsewhere:
            sent = piece if name == "set_custom_meta" else rows_only(piece)
            sent.extra_info = {}
            args = {"name": name, "partition": partition, "arguments": _plain({what: sent, **rest})}
            yield from self._at_home(partition, home, "home.call", args, self.link.until(None))
            if name == "coalesce" and node is None:
                yield from self._coalesced_here(
                    partition, home, as_indexes(piece.index_array), check_names(rest["fields"], "fields")
                )
        if name == "coalesce" and node is not None:
            # At the homes they stand in order now: so they come, and what was there is moved together.
            yield from self._gathered(metadata, check_names(rest["fields"], "fields"), node, rest.get("timeout"))
        return metadata if name == "coalesce" else None

    def _coalesced_here(self, partition: str, home: int, indexes: Indexes, names: list[str]) -> Steps[None]:
        raise NotImplementedError  # see `PrefetchCalls`

    def _gathered(self, metadata: BatchMeta, names: list[str], node: int, timeout: float | None) -> Steps[int]:
        raise NotImplementedError  # see `PrefetchCalls`

    def _by_claim(self, name: str, arguments: dict[str, Any], local: Callable[..., Steps[Any]]) -> Steps[Any]:
        claim = arguments["claim"]
        if not isinstance(claim, Claim):
            return (yield from local(**arguments))  # which says so
        self._check_session(claim.meta)
        home = (yield from self._home(claim.partition_id, create=False)) if claim else None
        if home is None or self.link.is_here(home):
            return (yield from self._here(local(**arguments)))
        sent = dataclasses.replace(claim, meta=rows_only(claim.meta))
        args = {
            "name": name,
            "partition": claim.partition_id,
            "arguments": _plain({**arguments, "claim": sent}),
            "claimant": self._claimant(),
        }
        left_s = yield from self._at_home(claim.partition_id, home, "home.call", args, self.link.until(None))
        if name == "extend":
            claim.deadline_s = claim_clock() + left_s
            claim.lease_s = float(arguments["lease_s"])
        return None

    def _known_partitions(self) -> list[str]:
        try:
            return list(self.get_partition_list())
        except TransferQueueError:
            return super()._known_partitions()  # those of this node at least

    def _claimant(self) -> tuple[int, int]:
        """This process, for the home to ask whether it lives."""
        return self.link.ordinal, self._store.owner

    # Calls that concern all nodes.

    @blocking
    def get_partition_list(self) -> Steps[list[str]]:
        """Names of the partitions of all nodes, empty ones included."""
        listed = super().get_partition_list()
        for names in (yield from self._everywhere("get_partition_list", {})):
            listed.extend(names)
        return list(dict.fromkeys(listed))

    @blocking
    def kv_list(self, partition_id: str | None = None) -> Steps[dict[str, dict[str, dict[str, Any]]]]:
        """``{partition: {key: tags}}`` in the order of creation; an unknown partition gives ``{}``. Without a name: the
        partitions of all nodes."""
        if partition_id is not None:
            home = yield from self._home(check_partition(partition_id), create=False)
            if home is not None and not self.link.is_here(home):
                args = {"name": "kv_list", "partition": partition_id, "arguments": {"partition_id": partition_id}}
                found: dict[str, dict[str, dict[str, Any]]] = yield from self._at_home(
                    partition_id, home, "home.call", args, self.link.until(None)
                )
                return found
        listed = super().kv_list(partition_id)
        if partition_id is None:
            for others in (yield from self._everywhere("kv_list", {})):
                listed.update(others)
        return listed

    @functools.wraps(TransferQueueClient.set_limits)
    def _set_limits(self, /, partition_id: str, **settings: Any) -> Steps[None]:
        super().set_limits(partition_id, **settings)
        # Every node has all the rules: it may be, or become, the home of partitions that they are about.
        yield from self._everywhere("set_limits", {"partition_id": partition_id, **settings})

    set_limits: Any = blocking(_set_limits)

    @blocking
    def stats(self, partition_id: str | None = None) -> Steps[Stats]:
        """Sizes and clients of this node, and rows by state of the partitions whose home it is; with `partition_id` the
        rows of that partition, wherever its home is.

        Raises:
            PartitionNotFoundError: no such partition.
        """
        home = None
        if partition_id is not None:
            home = yield from self._home(check_partition(partition_id), create=False)
        copies = copies_nbytes(self._store, self.link.ordinal)
        if partition_id is None or home is None or self.link.is_here(home):
            return dataclasses.replace(super().stats(partition_id), copies_bytes=copies)
        args = {"partition": partition_id}
        rows, limits = yield from self._at_home(partition_id, home, "home.rows", args, self.link.until(None))
        return dataclasses.replace(super().stats(), rows=rows, limits=limits, copies_bytes=copies)

    @blocking
    def place_partition(self, partition_id: str, node: int | None = None) -> Steps[int]:
        """See `TransferQueueClient.place_partition`."""
        partition = check_partition(partition_id)
        wanted = self.link.ordinal if node is None else node
        return (yield from away(functools.partial(self.link.place, partition, wanted)))

    def _everywhere(self, name: str, arguments: dict[str, Any]) -> Steps[list[Any]]:
        """What the other nodes' agents answer, node by node."""
        others = yield from away(self.link.others)
        args = {"name": name, "partition": None, "arguments": _plain(arguments)}
        answers = []
        for ordinal in others:
            until_s = self.link.until(None)
            call = functools.partial(self.link.call, ordinal, "home.call", args, until_s=until_s)
            try:
                answers.append((yield from away(call)))
            except DataLostError:
                continue  # lost meanwhile, and what it had
        return answers

    async_get_partition_list: Any = asynchronous(get_partition_list)
    async_kv_list: Any = asynchronous(kv_list)
    async_set_limits: Any = asynchronous(set_limits)
    async_stats: Any = asynchronous(stats)
    async_place_partition: Any = asynchronous(place_partition)


def retitled(error: TransferTimeoutError, timeout: float | None) -> TransferTimeoutError:
    """The error of the last slice of a wait, as that of the whole of it."""
    details = dict(error.details)
    slice_s = details.get("timeout_s")
    if isinstance(error, NodeUnreachableError) or slice_s is None:
        return error
    details["timeout_s"] = timeout
    return type(error)(error.message.replace(f"waited {slice_s} s", f"waited {timeout} s", 1), **details)


def rows_only(metadata: BatchMeta) -> BatchMeta:
    """Its rows and which of them are pads: all that a home needs."""
    rows = BatchMeta(metadata.index_array, metadata.partition_ids, session=metadata.session)
    rows._pads = metadata._pads
    return rows


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as messages carry them: mappings and sequences of any class as dicts and lists."""
    plain = {}
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            value = dict(value)
        elif not isinstance(value, (str, bytes, list, tuple)) and hasattr(value, "tolist"):
            value = value.tolist()
        plain[name] = value
    return plain


def _local_steps(base: Any) -> Callable[..., Steps[Any]]:
    steps = getattr(base, "__steps__", None)
    if steps is not None:
        return steps  # type: ignore[no-any-return]

    def call(self: Any, /, **arguments: Any) -> Steps[Any]:
        return base(self, **arguments)
        yield  # never: nothing to wait for

    return call


def _route(name: str, route: Route) -> Any:
    base = getattr(TransferQueueClient, name)
    local = _local_steps(base)
    signature = inspect.signature(base)

    @functools.wraps(base)
    def steps(self: RoutedCalls, /, *args: Any, **kwargs: Any) -> Steps[Any]:
        bound = signature.bind(self, *args, **kwargs)
        arguments = dict(list(bound.arguments.items())[1:])
        if route.waits:
            arguments.setdefault("timeout", signature.parameters["timeout"].default)
        return (yield from self._routed(name, route, arguments, functools.partial(local, self)))

    steps.__dict__.pop("__steps__", None)
    return blocking(steps)


for _name, _entry in ROUTED.items():
    if _entry.by != OWN:
        _method = _route(_name, _entry)
        setattr(RoutedCalls, _name, _method)
        setattr(RoutedCalls, f"async_{_name}", asynchronous(_method))
