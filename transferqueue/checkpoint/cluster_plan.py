"""Which node loads what of a checkpoint."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from transferqueue.checkpoint.files import CheckpointFiles, as_corruption
from transferqueue.checkpoint.incoming import read_piece
from transferqueue.checkpoint.load import loaded_of
from transferqueue.checkpoint.manifest import FILES, HOMES, PAYLOAD, PartFacts
from transferqueue.checkpoint.node_load import names_of
from transferqueue.checkpoint.piece import Ints
from transferqueue.nodes.names import is_hidden

_PAYLOAD_FILE = f"{PAYLOAD}.arrow"


@dataclass
class _Partition:
    prefix: str
    home: int | None
    wanted: int


@dataclass
class _Payload:
    prefix: str
    node: int
    names: Ints = field(repr=False)


class ClusterPlan:
    """A context manager that closes the checkpoint's files.

    Args:
        directory: of the checkpoint.
        nodes: ordinals of the nodes that are here.
        here: ordinal of the node that takes what was saved on one machine.
        homes: partition -> ordinal of the home that it has now, which may be lost.

    Attributes:
        directory: as given.
        files: the open files.
        loaded: what the load tells its caller.
        highest_ordinal: the highest one that any row index in it is of.
    """

    def __init__(self, directory: Path, nodes: Sequence[int], here: int, homes: Mapping[str, int]) -> None:
        self.directory = directory
        self._nodes = list(nodes)
        self._nbytes = dict.fromkeys(self._nodes, 0)
        self._partitions: dict[str, _Partition] = {}
        self._payload: list[_Payload] = []
        # Tables alone: payload is read, and verified, by the nodes that load it.
        self.files = CheckpointFiles(directory, _is_read_here)
        try:
            self.files.verify()
            self.loaded = loaded_of(self.files)
            parts = self.files.manifest.parts
            if parts is None:
                self._spent = self._plan_machine(here, homes)
            else:
                self._spent = {int(ordinal): end for ordinal, end in (self.files.manifest.spent or {}).items()}
                self._plan_parts(parts, homes)
        except BaseException:
            self.files.close()
            raise
        self.highest_ordinal = max(self._spent, default=0)

    def wanted_homes(self) -> dict[str, tuple[int | None, int]]:
        """Partition -> (the home that it has, the one that it should get where it has none or that is lost)."""
        return {name: (each.home, each.wanted) for name, each in self._partitions.items()}

    def set_home(self, partition: str, ordinal: int) -> None:
        """The partition has that home now."""
        self._partitions[partition].wanted = ordinal

    def names_of(self, ordinal: int) -> dict[str, int]:
        """How many new names the node gives out, and below which index none of its are free."""
        count = sum(int(each.names[:, 1].sum()) for each in self._payload if each.node == ordinal)
        return {"names": count, "spent": self._spent.get(ordinal, 0)}

    def old_names(self) -> Ints:
        """int64 [n, 2]: stretches of all names as saved, those of the first node's payload first."""
        found = [each.names for ordinal in self._nodes for each in self._payload if each.node == ordinal]
        return np.concatenate([np.zeros((0, 2), np.int64), *found])

    def share_of(self, ordinal: int) -> dict[str, Any]:
        """What the node brings: arguments of `node_load.bring`."""
        partitions: dict[str, list[str]] = {}
        for name, each in self._partitions.items():
            if self._home_of(each) == ordinal:
                partitions.setdefault(each.prefix, []).append(name)
        return {
            "partitions": partitions,
            "payload": [each.prefix for each in self._payload if each.node == ordinal],
            "next_row": self._spent.get(ordinal, 0),
        }

    def close(self) -> None:
        """Idempotent."""
        self.files.close()

    def _home_of(self, each: _Partition) -> int:
        return each.home if each.home in self._nodes and each.home is not None else each.wanted

    def _plan_machine(self, here: int, homes: Mapping[str, int]) -> dict[int, int]:
        piece = read_piece(self.files, "", 0)
        self._add_partitions("", piece.partitions, here, homes)
        spent = piece.spent()
        spent[0] = max(spent.get(0, 0), self.files.manifest.next_row)
        return spent

    def _plan_parts(self, parts: Sequence[PartFacts], homes: Mapping[str, int]) -> None:
        # The largest first, so that what has no node of its own spreads evenly.
        for part in sorted(parts, key=lambda part: -part.payload_nbytes):
            node = (
                part.ordinal if part.ordinal in self._nodes else min(self._nodes, key=lambda each: self._nbytes[each])
            )
            self._nbytes[node] += part.payload_nbytes
            if part.kind == HOMES:
                self._add_partitions(part.prefix, part.partitions, node, homes)
            else:
                self._payload.append(_Payload(part.prefix, node, names_of(self.files, part.prefix)))

    def _add_partitions(self, prefix: str, names: Sequence[str], wanted: int, homes: Mapping[str, int]) -> None:
        with as_corruption(self.files.path(f"{prefix}partitions.arrow"), "it says what cannot be"):
            for name in names:
                if is_hidden(name):
                    raise ValueError(f"a partition of a name that nodes keep for themselves: {name[:80]!r}")
                self._partitions[name] = _Partition(prefix, homes.get(name), wanted)

    def __enter__(self) -> ClusterPlan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()


def _is_read_here(name: str) -> bool:
    return not name.endswith(_PAYLOAD_FILE) and (name in FILES or f"-{PAYLOAD}-" in name)
