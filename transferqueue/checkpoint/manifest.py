"""`metadata.json`: what is in a checkpoint's directory, and by which rules it was written."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from importlib import metadata as distributions
from typing import TYPE_CHECKING, Any

import msgspec

from transferqueue.checkpoint.libraries import new_checksum
from transferqueue.errors import CorruptCheckpointError, LayoutMismatchError

if TYPE_CHECKING:
    from transferqueue import _native

MANIFEST = "metadata.json"
FORMAT = "transferqueue-shm checkpoint"
FORMAT_VERSION = 1
TABLES = ("partitions", "blocks", "fields", "runs", "cells", "rows", "tasks")
PAYLOAD = "payload"
FILES = tuple(f"{name}.arrow" for name in (*TABLES, PAYLOAD))


class FileFacts(msgspec.Struct, frozen=True):
    """Size and checksum of one file."""

    nbytes: int
    xxh3_128: str


class Manifest(msgspec.Struct, frozen=True):
    """`metadata.json`.

    Attributes:
        session: the session that was saved, and `earlier_sessions` those that it had been loaded from: metadata that
            names one of them means these rows.
        created_at: UTC, ISO 8601.
        storage_saved: whether the payload is in it. Of a directory always: a store in memory has no other copy.
        user_metadata: what the caller gave.
        next_row: no index below it will be given out again.
        files: by name.
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

    def encode(self) -> bytes:
        """The file's bytes, with a checksum of its own."""
        plain = msgspec.to_builtins(self)
        return json.dumps({**plain, "checksum": _checksum(plain)}, indent=2, ensure_ascii=True).encode()


def describe(
    saved: _native.SavedSession,
    *,
    session: str,
    earlier_sessions: Sequence[str] = (),
    storage_saved: bool,
    payload_nbytes: int,
    user_metadata: Any = None,
    files: dict[str, FileFacts],
) -> Manifest:
    """The manifest of what is being saved now."""
    return Manifest(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        library_version=_library_version(),
        session=session,
        earlier_sessions=list(earlier_sessions),
        created_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        storage_saved=storage_saved,
        user_metadata=user_metadata,
        next_row=saved.next_row,
        rows=int(saved.runs[:, 2].sum()),
        payload_nbytes=payload_nbytes,
        files=files,
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
        raise type(error)(f"metadata of a checkpoint must be JSON values: {error}") from None
    if back != metadata:
        raise TypeError(
            "metadata of a checkpoint must be JSON values, and JSON would not give this back as it is: names in its "
            "dicts that are no strings, or tuples instead of lists"
        )


def parse_manifest(raw: bytes, path: str, files: Sequence[str]) -> Manifest:
    """The manifest in `raw`, which must list exactly `files`.

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
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise LayoutMismatchError(
            f"{path} is of format version {version!r}; this build reads version {FORMAT_VERSION}. Load it with the "
            f"library that wrote it ({plain.get('library_version')!r})",
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
    if sorted(manifest.files) != sorted(files):
        raise CorruptCheckpointError(
            f"{path} lists other files than a checkpoint has: {sorted(manifest.files)}", path=path
        )
    return manifest
