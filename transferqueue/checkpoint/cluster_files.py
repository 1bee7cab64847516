"""The directory of a checkpoint of several nodes, as the process that leads the save writes it."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transferqueue.checkpoint.manifest import HOMES, MARK, FileFacts, PartFacts, describe
from transferqueue.checkpoint.save import write_manifest
from transferqueue.storage.private_files import FILE_MODE


def write_mark(directory: Path, mark: str) -> None:
    """By which other nodes know the directory that is meant."""
    fd = os.open(directory / MARK, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        os.write(fd, mark.encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def finish_save(
    directory: Path,
    written: Sequence[Mapping[str, Any]],
    *,
    session: str,
    earlier_sessions: Sequence[str],
    user_metadata: Any,
) -> None:
    """The manifest, when all nodes have written their shares.

    Args:
        written: what each node says of its share: parts, files and spent, see `NodeSave.write`.

    Raises:
        FileNotFoundError: a file is not here, or not as large as the node that wrote it says.
    """
    parts: list[PartFacts] = []
    files: dict[str, FileFacts] = {}
    spent: dict[int, int] = {}
    for share in written:
        parts.extend(PartFacts(*facts) for facts in share["parts"])
        files.update({name: FileFacts(*facts) for name, facts in share["files"].items()})
        for ordinal, end in share["spent"].items():
            spent[int(ordinal)] = max(spent.get(int(ordinal), 0), end)
    for name, facts in files.items():
        if os.stat(directory / name).st_size != facts.nbytes:
            raise FileNotFoundError(
                errno.ENOENT, "another node's file is not whole here: the nodes do not share it", str(directory / name)
            )
    parts.sort(key=lambda part: (part.ordinal, part.kind))
    os.unlink(directory / MARK)
    write_manifest(
        directory,
        describe(
            session=session,
            earlier_sessions=earlier_sessions,
            storage_saved=True,
            next_row=spent.get(0, 0),
            rows=sum(part.rows for part in parts if part.kind == HOMES),
            payload_nbytes=sum(part.payload_nbytes for part in parts),
            user_metadata=user_metadata,
            files=files,
            parts=parts,
            spent=spent,
        ),
    )
