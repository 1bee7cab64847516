"""`metadata.json`: what is in a checkpoint's directory, and by which rules it was written."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Sequence
from importlib import metadata as distributions
from typing import Any

import msgspec

from transferqueue.checkpoint.libraries import new_checksum
from transferqueue.errors import CorruptCheckpointError, LayoutMismatchError

MANIFEST = "metadata.json"
FORMAT = "transferqueue-shm checkpoint"
FORMAT_VERSION = 1
NODES_FORMAT_VERSION = 2
"""Of a checkpoint of several nodes."""
TABLES = ("partitions", "blocks", "fields", "runs", "cells", "rows", "tasks")
PAYLOAD = "payload"
FILES = tuple(f"{name}.arrow" for name in (*TABLES, PAYLOAD))
MARK = "saving"
"""While several nodes write to a directory: by which they know that it is one."""
HOMES = "homes"
_OF_NODES = re.compile(rf"n\d{{1,4}}-(?:{HOMES}|{PAYLOAD})-(?:{'|'.join(map(re.escape, FILES))})")


def is_name_of_ours(name: str) -> bool:
    """Whether a checkpoint's directory may hold a file of that name."""
    return name in (MANIFEST, MARK) or name in FILES or _OF_NODES.fullmatch(name) is not None


class FileFacts(msgspec.Struct, frozen=True):
    """Size and checksum of one file."""

    nbytes: int
    xxh3_128: str


class PartFacts(msgspec.Struct, frozen=True):
    """What one node wrote: eight files of its own.

    Attributes:
        kind: "homes": the partitions whose home it was. "payload": what it kept for those of other nodes, rows of
            one hidden partition, whose indexes are the names that rows of homes hold.
        ordinal: of the node.
        partitions: of "homes".
        payload_nbytes: of blocks, stubs included.
    """

    kind: str
    ordinal: int
    partitions: list[str]
    rows: int
    payload_nbytes: int

    @property
    def prefix(self) -> str:
        """Of the names of its files."""
        return f"n{self.ordinal}-{self.kind}-"


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """`metadata.json`.

    Attributes:
        session: the session that was saved, and `earlier_sessions` those that it had been loaded from: metadata that
            names one of them means these rows.
        created_at: UTC, ISO 8601.
        storage_saved: whether the payload is in it. Of a directory always: a store in memory has no other copy.
        user_metadata: what the caller gave.
        next_row: no index below it will be given out again.
        files: by name.
        parts: of a checkpoint of several nodes; None: it is of one machine, in `FILES`.
        spent: of several nodes: ordinal -> no index of that node's below it will be given out again.
    """

    format: str
    format_version: int
    library_version: str
    session: str
    earlier_sessions: list[str]
    created_at: str
    storage_saved: bool
    user_metadata: Any
    next_row: int
    rows: int
    payload_nbytes: int
    files: dict[str, FileFacts]
    parts: list[PartFacts] | None = None
    spent: dict[str, int] | None = None

    def encode(self) -> bytes:
        """The file's bytes, with a checksum of its own."""
        plain = msgspec.to_builtins(self)
        return json.dumps({**plain, "checksum": _checksum(plain)}, indent=2, ensure_ascii=True).encode()


def describe(
    *,
    session: str,
    earlier_sessions: Sequence[str] = (),
    storage_saved: bool,
    next_row: int,
    rows: int,
    payload_nbytes: int,
    user_metadata: Any = None,
    files: dict[str, FileFacts],
    parts: list[PartFacts] | None = None,
    spent: dict[int, int] | None = None,
) -> Manifest:
    """The manifest of what is being saved now."""
    return Manifest(
        format=FORMAT,
        format_version=FORMAT_VERSION if parts is None else NODES_FORMAT_VERSION,
        library_version=_library_version(),
        session=session,
        earlier_sessions=list(earlier_sessions),
        created_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        storage_saved=storage_saved,
        user_metadata=user_metadata,
        next_row=next_row,
        rows=rows,
        payload_nbytes=payload_nbytes,
        files=files,
        parts=parts,
        spent=None if spent is None else {str(ordinal): end for ordinal, end in spent.items()},
    )


def _library_version() -> str:
    try:
        return distributions.version("transferqueue-shm")
    except distributions.PackageNotFoundError:  # a source tree on the path
        return "0+unknown"


def _checksum(plain: dict[str, Any]) -> str:
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    checksum = new_checksum()
    checksum.update(canonical.encode())
    return str(checksum.hexdigest())


def check_user_metadata(metadata: Any) -> None:
    """Whether JSON gives `metadata` back as it is.

    Raises:
        TypeError, ValueError: it holds something else than JSON values (None, bool, numbers, str, lists, dicts with str
            keys), or NaN.
    """
    try:
        back = json.loads(json.dumps(metadata, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"metadata of a checkpoint must be JSON values: {error}") from None
    if back != metadata:
        raise TypeError(
            "metadata of a checkpoint must be JSON values, and JSON would not give this back as it is: names in its "
            "dicts that are no strings, or tuples instead of lists"
        )


def parse_manifest(raw: bytes, path: str, files: Sequence[str]) -> Manifest:
    """The manifest in `raw`, which must list exactly `files`, or those of its parts where it is of several nodes.

    Raises:
        CorruptCheckpointError: damaged, or names files that no checkpoint has.
        LayoutMismatchError: of another format, or of a version that this build does not read.
    """
    try:
        plain = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpointError(f"{path} is no JSON: {error}", path=path) from None
    found = plain.get("format") if isinstance(plain, dict) else None
    if found != FORMAT:
        raise LayoutMismatchError(
            f"{path} is not of a checkpoint of this library: its format is {found!r}, not {FORMAT!r}",
            expected=FORMAT,
            found=found,
            path=path,
        )
    version = plain.get("format_version")
    if version not in (FORMAT_VERSION, NODES_FORMAT_VERSION) or isinstance(version, bool):
        raise LayoutMismatchError(
            f"{path} is of format version {version!r}; this build reads versions {FORMAT_VERSION} and "
            f"{NODES_FORMAT_VERSION}. Load it with the library that wrote it ({plain.get('library_version')!r})",
            expected=FORMAT_VERSION,
            found=version,
            path=path,
        )
    stated = plain.pop("checksum", None)
    try:
        found_checksum = _checksum(plain)
    except RecursionError as error:
        raise CorruptCheckpointError(f"{path} is no manifest: {error}", path=path) from None
    if stated != found_checksum:
        raise CorruptCheckpointError(
            f"{path} is damaged: its content does not have the checksum that it states", path=path
        )
    try:
        manifest = msgspec.convert(plain, Manifest, strict=True)
    except ValueError as error:  # msgspec's, or a lone surrogate somewhere
        raise CorruptCheckpointError(f"{path} is no manifest: {error}", path=path) from None
    if version == NODES_FORMAT_VERSION:
        files = _check_parts(manifest, path)
    elif manifest.parts is not None:
        raise CorruptCheckpointError(f"{path} is of one machine and has parts of nodes", path=path)
    if sorted(manifest.files) != sorted(files):
        raise CorruptCheckpointError(
            f"{path} lists other files than a checkpoint has: {sorted(manifest.files)}", path=path
        )
    return manifest


def _check_parts(manifest: Manifest, path: str) -> list[str]:
    """The files of its parts.

    Raises:
        CorruptCheckpointError: parts that cannot be.
    """
    parts = manifest.parts or []
    prefixes = [part.prefix for part in parts]
    names = [f"{prefix}{name}" for prefix in prefixes for name in FILES]
    partitions = [name for part in parts for name in part.partitions]
    spent = manifest.spent or {}
    whole = (
        parts
        and len(set(prefixes)) == len(prefixes)
        and all(_OF_NODES.fullmatch(name) for name in names)
        and len(set(partitions)) == len(partitions)
        and all(ordinal.isdecimal() and len(ordinal) <= 4 and 0 <= end < 1 << 62 for ordinal, end in spent.items())
    )
    if not whole:
        raise CorruptCheckpointError(f"{path} lists parts of nodes that cannot be", path=path)
    return names
