"""What `WorkerGroup.describe` returns and prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transferqueue.controller.describe.mesh_description import MeshDescription
from transferqueue.controller.describe.pool_description import PoolDescription
from transferqueue.controller.describe.rank_description import HEADER, STOPPED, RankDescription
from transferqueue.controller.describe.text import aligned


@dataclass(frozen=True, repr=False)
class GroupDescription:
    """A group as it is now. ``str()`` is what is printed; ``repr()`` is its first line, so that an interactive Python
    does not show everything twice.

    Attributes:
        group_class, worker_class: names of the group's class and of the class whose methods it shows.
        role: of a group that shows a role of colocated workers; None otherwise.
        roles: of a group of colocated workers, whose meshes are those of the roles' own groups; else empty.
        is_dead: whether it takes calls no more; `death` says why.
        master: address and port of the rendezvous; None in one process.
        session: of the data plane, that this program is in; None outside one.
        pool: what the ranks run in; None for ranks that are in no pool of this program.
        missing: the ranks that did not answer within `timeout_s`.
    """

    group_class: str
    worker_class: str
    role: str | None
    is_dead: bool
    death: str
    master: tuple[str, str] | None
    session: str | None
    pool: PoolDescription | None
    ranks: tuple[RankDescription, ...]
    meshes: tuple[MeshDescription, ...]
    timeout_s: float
    roles: tuple[str, ...] = ()

    @property
    def world_size(self) -> int:
        return len(self.ranks)

    @property
    def nodes(self) -> tuple[str, ...]:
        """In rank order."""
        return tuple(dict.fromkeys(rank.node for rank in self.ranks))

    @property
    def missing(self) -> tuple[int, ...]:
        return tuple(rank.rank for rank in self.ranks if not rank.answered)

    def __repr__(self) -> str:
        return f"<{self._title()}>"

    def _title(self) -> str:
        role = f", role {self.role!r} of colocated workers" if self.role is not None else ""
        nodes = f"{len(self.nodes)} node{'s' if len(self.nodes) != 1 else ''}"
        state = f"dead: {self.death}" if self.is_dead else "takes calls"
        return f"{self.group_class} of {self.worker_class}{role}: world size {self.world_size} on {nodes}; {state}"

    def __str__(self) -> str:
        lines = [self._title()]
        if self.pool is not None:
            lines += self.pool.head()
        master = ":".join(self.master) if self.master is not None else "none"
        lines.append(f"rendezvous: {master}; session: {self.session or 'none'}")
        lines += aligned([HEADER, *(rank.row() for rank in self.ranks)])
        of_roles = f"; those of {', '.join(map(repr, self.roles))} are shown by the group of each" if self.roles else ""
        lines += [str(mesh) for mesh in self.meshes] or [f"meshes: none registered{of_roles}"]
        if self.missing and not all(rank.state == STOPPED for rank in self.ranks):
            lines.append(f"no answer within {self.timeout_s:g} s from {ranks_text(self.missing)}")
        return "\n".join(lines)


def ranks_text(ranks: Sequence[int]) -> str:
    """``"rank 2"``, ``"ranks 1, 3"``."""
    return f"rank{'s' if len(ranks) != 1 else ''} {', '.join(map(str, ranks))}"
