"""What every part of the client stands on: the store, the session's name, checks of arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from transferqueue import _native
from transferqueue.aio import AsyncRunner
from transferqueue.config import Config
from transferqueue.errors import ClosedError, PartitionNotFoundError, SessionNotFoundError, name_some
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.samplers.base import BaseSampler
from transferqueue.samplers.registry import SamplerRun, load_sampler
from transferqueue.storage.attachment import Attachment
from transferqueue.storage.loaded_sessions import read_loaded_sessions
from transferqueue.tag_maps import TagDecoder

if TYPE_CHECKING:
    from transferqueue._native import Store, TaskSnapshot

Indexes = npt.NDArray[np.int64]
_INT64 = np.dtype(np.int64)


class Housekeeping(Protocol):
    """The part of the storage service that a client calls."""

    def start_if_missing(self) -> None:
        """Takes the session's service over when nobody runs it."""

    def note_gather(self, partition: str, indexes: Indexes, fields: Sequence[str], copied_nbytes: int) -> None:
        """A read of these rows had to copy so many bytes from several places."""


class ClientCore:
    """State of a client; its calls are in the classes that inherit this one."""

    def __init__(self, attachment: Attachment, config: Config, service: Housekeeping) -> None:
        self._attachment = attachment
        self._config = config
        self._service = service
        self._store: Store = attachment.store
        self._async_runner = AsyncRunner(attachment.store)
        self._tags = TagDecoder(allow_pickle=config.unpickles_own)
        self._closed = False
        self._sampler_prototype: BaseSampler | None = None

    @property
    def session(self) -> str:
        """Name of the session: the same on all nodes that it spans."""
        return self._attachment.session_name

    @property
    def closed(self) -> bool:
        """Whether this client, or this process's session, was closed."""
        return self._closed or self._attachment.closed

    def close(self) -> None:
        """Ends the client's threads; later calls raise ClosedError. The session stays. Idempotent."""
        self._closed = True
        self._async_runner.close()

    def count_method(
        self,
        method: str,
        *,
        rows: int,
        get_s: float,
        run_s: float,
        put_s: float,
        viewed_bytes: int,
        copied_bytes: int,
        failed: bool,
    ) -> None:
        """Counts one call of a worker's method for the session's metrics. Also on a closed client; never raises."""
        self._store.count_method(
            method,
            rows=rows,
            get_s=get_s,
            run_s=run_s,
            put_s=put_s,
            viewed_bytes=viewed_bytes,
            copied_bytes=copied_bytes,
            failed=failed,
        )

    def _open(self) -> Store:
        """The store, for the call that begins now."""
        if self.closed:
            raise ClosedError(
                f"this client of session {self.session!r} was closed; call transferqueue.init() or get_client() again",
                session=self.session,
            )
        self._service.start_if_missing()
        return self._store

    def _sampler(self) -> BaseSampler:
        # Without a lock, which a fork could copy held: two threads may load it, and either is as good.
        prototype = self._sampler_prototype
        if prototype is None:
            prototype = self._sampler_prototype = load_sampler(
                self._attachment.description.sampler, allow_pickle=self._config.unpickles_own
            )
        return prototype

    def _sampler_run(self, snapshot: TaskSnapshot) -> SamplerRun:
        """The session's sampler with the state that the snapshot has of it."""
        return SamplerRun(self._sampler(), snapshot.sampler_state, allow_pickle=self._config.unpickles_own)

    def _check_session(self, metadata: BatchMeta | KVBatchMeta) -> None:
        if metadata.session is not None and metadata.session != self.session:
            if metadata.session in read_loaded_sessions(self._attachment.paths):
                return
            raise SessionNotFoundError(
                f"the metadata belongs to session {metadata.session!r}, this client to session {self.session!r}: "
                "global indexes of one mean nothing in the other",
                session=metadata.session,
                found=self.session,
            )

    def _partitions(self) -> list[str]:
        """Names of the partitions, empty ones included."""
        return self._store.partitions()

    def _known_partitions(self) -> list[str]:
        """For messages."""
        return self._partitions()

    def _unknown_partition(self, partition: str) -> PartitionNotFoundError:
        known = self._known_partitions()
        return PartitionNotFoundError(
            f"there is no partition {partition!r} in session {self.session!r}; there are: {name_some(known) or 'none'}",
            partition_id=partition,
            known=tuple(known),
        )

    def _what_does_not_exist(self, partition: str, fields: Sequence[str]) -> str:
        """For messages of calls that waited in vain: ``; there is no partition 'p' ...``, or which of `fields` no row
        of it has and which fields there are; empty when all are known."""
        if partition not in self._partitions():
            return f"; {self._unknown_partition(partition)}"
        return f"; {said}" if (said := unknown_fields(partition, fields, self._store.field_names(partition))) else ""


def unknown_fields(partition: str, fields: Sequence[str], known: Sequence[str]) -> str:
    """``partition 'p' has no field 'y', it has 'x'``; empty when all `fields` are `known`."""
    unknown = [field for field in fields if field not in known]
    if not unknown:
        return ""
    named = f"field{'s' if len(unknown) > 1 else ''} {name_some(unknown)}"
    return f"partition {partition!r} has no {named}, it has {name_some(known) or 'none yet'}"


def check_batch_meta(metadata: Any, what: str) -> BatchMeta:
    """The argument, if it is a BatchMeta. Raises TypeError."""
    if not isinstance(metadata, BatchMeta):
        hint = "; kv_batch_get_by_meta takes a KVBatchMeta" if isinstance(metadata, KVBatchMeta) else ""
        raise TypeError(f"{what} takes a BatchMeta, not {type(metadata).__name__}{hint}")
    return metadata


def check_partition(partition: Any) -> str:
    """The partition's name, if it may be one.

    Raises:
        TypeError: not a str. ValueError: empty, or with a NUL.
    """
    if not isinstance(partition, str):
        raise TypeError(f"partition_id must be a str, not {type(partition).__name__}")
    if not partition or "\0" in partition:
        raise ValueError(f"{partition[:80]!r} is no partition name: it must not be empty or hold NUL characters")
    return partition


def check_only_node(node: int | None) -> None:
    """Raises ValueError for the ordinal of a node that a session of one machine has not got."""
    if node not in (None, 0):
        raise ValueError(f"there is no node {node!r}: this session is on one machine, whose number is 0")


def check_names(names: Any, what: str) -> list[str]:
    """Field names from a str or a sequence of them.

    Raises:
        TypeError: not strings. ValueError: none, an empty one, or one twice.
    """
    try:
        listed = [names] if isinstance(names, str) else list(names)
    except TypeError:  # also what has an __iter__ that its kind of value does not have, as a tensor without dimensions
        raise TypeError(f"{what} must be a str or a sequence of str, not {names!r:.200}") from None
    for name in listed:
        if not isinstance(name, str):
            raise TypeError(f"{what} must be strings, not {type(name).__name__} {name!r}")
        if not name or "\0" in name:
            raise ValueError(f"{what}: {name[:80]!r} is no field name: it must not be empty or hold NUL characters")
    if not listed:
        raise ValueError(f"{what} must name at least one field")
    refuse_duplicates(listed, f"Got duplicated {what}")
    return listed


def check_keys(keys: Any, *, distinct: bool = True) -> list[str]:
    """Keys from a str or a list; any length and content but the empty string.

    Raises:
        TypeError: not a str or a list of them. ValueError: none, an empty one, or (with `distinct`) one twice.
    """
    if isinstance(keys, str):
        listed = [keys]
    elif isinstance(keys, list):
        listed = keys
    else:
        raise TypeError(f"keys must be a str or a list of str, not {type(keys).__name__}")
    if not listed:
        raise ValueError("keys must not be empty: name at least one key")
    for key in listed:
        if not isinstance(key, str):
            raise TypeError(f"keys must be strings, not {type(key).__name__} {key!r}")
        if not key:
            raise ValueError("a key must not be the empty string")
    if distinct:
        refuse_duplicates(listed, "Got duplicated keys")
    return list(listed)


def refuse_duplicates(names: Sequence[Any], message: str) -> None:
    """Raises ValueError naming what stands there twice."""
    if len(set(names)) == len(names):
        return
    counts: dict[Any, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    raise ValueError(f"{message}. {name_some(name for name, count in counts.items() if count > 1)}")


def refuse_duplicate_rows(indexes: Indexes) -> None:
    """Raises ValueError naming the rows that metadata names twice."""
    if not _native.distinct(indexes):
        refuse_duplicates(indexes.tolist(), "the metadata names rows twice")


def as_indexes(indexes: Iterable[int] | Indexes) -> Indexes:
    """Global indexes as the native core takes them: int64."""
    if type(indexes) is np.ndarray and indexes.dtype is _INT64:
        return indexes
    array = indexes if isinstance(indexes, np.ndarray) else np.fromiter(indexes, dtype=np.int64)
    return np.ascontiguousarray(array, dtype=np.int64)


def by_partition(metadata: BatchMeta) -> list[tuple[str, Indexes]]:
    """(partition, global indexes) of each partition in turn."""
    if not metadata.size:
        return []
    pieces = [metadata] if len(metadata.partition_names) == 1 else metadata.chunk_by_partition()
    return [(piece.partition_names[0], as_indexes(piece.index_array)) for piece in pieces]
