"""`WorkerGroup.describe`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from transferqueue.config import SESSION_VARIABLE
from transferqueue.controller.describe.group_description import GroupDescription
from transferqueue.controller.describe.mesh_description import meshes_of
from transferqueue.controller.describe.pool_description import PoolDescription, bundle_text
from transferqueue.controller.describe.rank_description import STOPPED, RankDescription

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from transferqueue.controller.rank_set import RankSet

DEFAULT_TIMEOUT_S = 5.0

_MAX_CAUSE = 120


class Describing:
    """What a `WorkerGroup` tells of itself."""

    if TYPE_CHECKING:
        _ranks: RankSet
        _user_class: type
        _positions: list[int]
        _name_on_rank: Callable[[str], str]

        @property
        def is_dead(self) -> bool: ...

        def _role_classes(self) -> Mapping[str, type]: ...

    def describe(self, timeout_s: float = DEFAULT_TIMEOUT_S, *, file: TextIO | None = None) -> GroupDescription:
        """Prints, and returns, what the group is and where: pool, placement groups and share, nodes, of each rank its
        bundle, actor, pid, devices, process group and state, every mesh's DP map and collect mask, the session.

        Works while ranks hang, and after they died: a rank that does not answer is named, with what is known of it
        without its help, such as the method that it is running, and with its last answer.

        Args:
            timeout_s: how long each rank may take to answer; all are asked at once.
            file: where to print; None: standard output.
        """
        description = self._description(timeout_s)
        print(description, file=file or sys.stdout, flush=True)
        return description

    def __repr__(self) -> str:
        if "_user_class" not in self.__dict__:  # a constructor that raised
            return f"<{type(self).__name__}, not started>"
        role = getattr(self._name_on_rank, "role", None)
        played = f", role {role!r}" if role is not None else ""
        size = f"world size {len(self._positions)}{', dead' if self.is_dead else ''}"
        return f"<{type(self).__name__} of {self._user_class.__name__}{played}, {size}>"

    def _description(self, timeout_s: float) -> GroupDescription:
        ranks, positions = self._ranks, self._positions
        role = getattr(self._name_on_rank, "role", None)
        reports = ranks.reports(positions, role, timeout_s)
        missing = [position for position in positions if position not in reports]
        states = ranks.states() if not ranks.is_stopped else []
        running = ranks.running([position for position in missing if states and states[position].state != "dead"])
        pool = ranks.pool_facts()
        described = []
        for number, position in enumerate(positions):
            facts = ranks.ranks[position]
            known = (0.0, reports[position]) if position in reports else ranks.earlier_report(position, role)
            bundle = pool.bundles[position] if pool is not None and pool.bundles else None
            devices = (bundle.devices if bundle is not None else ()) or (known[1].seen_devices if known else ())
            described.append(
                RankDescription(
                    rank=number,
                    node=facts.node,
                    pid=facts.pid,
                    actor=ranks.names[position] if ranks.names else known[1].actor if known else "",
                    bundle=bundle_text(bundle) if bundle is not None else "",
                    devices=devices,
                    state=_state_text(states[position]) if states else STOPPED,
                    report=known[1] if known else None,
                    report_age_s=known[0] if known else None,
                    running=running.get(position, ""),
                )
            )
        return GroupDescription(
            group_class=type(self).__name__,
            worker_class=self._user_class.__name__,
            role=role,
            is_dead=self.is_dead,
            death=_short(ranks.death.message) if ranks.death is not None else "closed",
            master=ranks.master,
            session=os.environ.get(SESSION_VARIABLE),
            pool=PoolDescription(pool) if pool is not None else None,
            ranks=tuple(described),
            meshes=meshes_of(described),
            timeout_s=timeout_s,
            roles=tuple(self._role_classes()),
        )


def _state_text(state: Any) -> str:
    return f"{state.state} ({_short(state.cause)})" if state.cause else str(state.state)


def _short(text: str) -> str:
    """The first line, not too long of a table; the whole is in the error of the call that noticed it."""
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= _MAX_CAUSE else f"{line[: _MAX_CAUSE - 3]}..."
