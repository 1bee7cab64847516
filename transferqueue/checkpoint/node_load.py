"""What one node of several loads: some partitions as their home, and payload for those of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from transferqueue import _native
from transferqueue.checkpoint.files import CheckpointFiles, as_corruption
from transferqueue.checkpoint.incoming import Incoming, StubBlocks, plan_of_piece, read_piece, renamed_stubs
from transferqueue.checkpoint.joining import joined
from transferqueue.checkpoint.piece import Ints, Piece
from transferqueue.checkpoint.stub_names import Renaming, renaming_of
from transferqueue.nodes.names import MOST_ROWS, PAYLOAD, first_row, ordinals_of


def bring(
    store: _native.Store,
    directory: str,
    checksum: str,
    *,
    ordinal: int,
    partitions: Mapping[str, Sequence[str]],
    payload: Sequence[str],
    old_names: Ints,
    new_names: Ints,
    next_row: int,
    allow_pickle: bool,
) -> Incoming:
    """Brings a node's share of a checkpoint into its store, where nobody sees it yet.

    Args:
        checksum: of the checkpoint's manifest, as another node sees it.
        ordinal: of this node.
        partitions: prefix of a part -> those of its partitions that this node is home of from now on.
        payload: prefixes of the parts with payload that this node keeps from now on.
        old_names, new_names: stretches, int64 [n, 2], of the names of all payload, as saved and from now on.
        next_row: no index of this node's below it is given out again.

    Raises:
        as `load`. FileNotFoundError: this node does not see that checkpoint there.
    """
    prefixes = [*partitions, *payload]
    wanted = tuple(prefixes)
    with CheckpointFiles(Path(directory), lambda name: name.startswith(wanted) if wanted else False) as files:
        if files.checksum != checksum:
            raise FileNotFoundError(
                f"{directory} is another checkpoint on node {ordinal} than on the node that loads it"
            )
        files.verify()
        with as_corruption(files.path(""), "its parts contradict each other"):
            names = renaming_of(old_names, new_names)
            pieces = [_no_payload()]
            for number, prefix in enumerate(prefixes):
                piece = read_piece(files, prefix, number)
                if prefix in partitions:
                    pieces.append(piece.of_partitions(partitions[prefix]))
                else:
                    pieces.append(_kept(piece, names, ordinal))
            whole = joined(pieces)
            renamed = renamed_stubs(whole, StubBlocks(files, whole, prefixes).read, names)
        own = first_row(ordinal)
        behind = max(own, next_row, whole.spent().get(ordinal, 0))
        plan = plan_of_piece(whole, min(behind, own + MOST_ROWS), prefixes, files)
        return Incoming(store, files, plan, allow_pickle=allow_pickle, renamed=renamed, check=True)


def names_of(files: CheckpointFiles, prefix: str) -> Ints:
    """int64 [n, 2]: the names of a part's payload, first and count of stretches, ascending.

    Raises:
        CorruptCheckpointError: the part is none of payload.
    """
    piece = read_piece(files, prefix, 0)
    with as_corruption(files.path(prefix), "it is no payload of a node"):
        _check_payload(piece)
    return piece.runs[:, 1:3].copy()


def _kept(piece: Piece, names: Renaming, ordinal: int) -> Piece:
    _check_payload(piece)
    renamed = piece.renamed(names.old, names.new)
    if renamed.all_rows() != piece.all_rows() or (ordinals_of(renamed.runs[:, 1]) != ordinal).any():
        raise ValueError("payload without a name on this node")
    return renamed


def _check_payload(piece: Piece) -> None:
    if piece.partitions != [PAYLOAD] or piece.tasks:
        raise ValueError("other partitions among payload")


def _no_payload() -> Piece:
    """So that there is the partition of payload, as on every node."""
    session = _native.SavedSession()
    session.set_partitions([PAYLOAD], [[]])
    return Piece.of(session)
