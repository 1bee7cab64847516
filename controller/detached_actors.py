"""Actors that another program started, as the ranks of a group."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transferqueue.controller.actor_names import find_actors, names_with_prefix
from transferqueue.controller.actor_states import STARTING, actor_table
from transferqueue.controller.collect import gather
from transferqueue.controller.errors import DetachedWorkersNotFoundError, WorkerStartError
from transferqueue.controller.rank_actor import Introduction
from transferqueue.controller.rank_facts import RankFacts
from transferqueue.workers.ray_runtime import require_ray

_KNOWN_WITHIN_S = 5.0
_POLL_S = 0.05
_POLITE_S = 1.0


@dataclass(frozen=True)
class DetachedActors:
    """Living actors, in the order of the ranks that they are to be, and what they say of themselves.

    `user_class` and `master` are None and empty where no worker group started the actors: plain Ray actors of a worker
    class will do as ranks.
    """

    handles: list[Any]
    names: list[str]
    ranks: list[RankFacts]
    user_class: type | None
    master: tuple[str, str]
    placement_groups: list[Any]


def found_workers(
    prefix: str | None,
    names: Sequence[str] | None,
    handles: Sequence[Any] | None,
    user_class: type | None,
    namespace: str | None,
    timeout_s: float,
) -> DetachedActors:
    """The workers that a program names: by handles, else by names, else by the prefix of their names.

    Raises as `find_actors`, `names_with_prefix` and `introduced`; `ValueError` when nothing is said.
    """
    if handles is None:
        if names is None:
            if prefix is None:
                raise ValueError("which workers? Say resource_pool, or worker_names, worker_handles or name_prefix")
            names = names_with_prefix(prefix, None if user_class is None else user_class.__name__, namespace)
        handles = find_actors(names, namespace)
    return introduced(handles, timeout_s, user_class is None)


def introduced(handles: Sequence[Any], timeout_s: float, patiently: bool) -> DetachedActors:
    """Asks the actors who they are; with `patiently`, waits for those that finish a call first.

    Raises `DetachedWorkersNotFoundError` for one that does not live, `WorkerStartError` for one whose worker was never
    built, `TransferTimeoutError` naming those that have not answered after `timeout_s`.
    """
    if not handles:
        raise ValueError("no workers: name at least one, or pass its handle")
    entries = _entries(handles, timeout_s)
    gone = [f"{entry.get('Name') or handle}" for handle, entry in zip(handles, entries, strict=True) if _is_gone(entry)]
    if gone:
        raise DetachedWorkersNotFoundError(f"these workers do not live: {', '.join(gone)}", missing=tuple(gone))
    ranks = [_facts_of(rank, entry) for rank, entry in enumerate(entries)]
    asked = {rank: one._tq_introduce.remote() for rank, one in enumerate(handles) if hasattr(one, "_tq_introduce")}
    ours = list(asked)
    if not patiently and ours:
        ready, _ = require_ray("from_detached").wait(list(asked.values()), num_returns=len(ours), timeout=_POLITE_S)
        ours = [rank for rank in ours if asked[rank] in ready]
    answers: list[Introduction] = gather(
        [asked[rank] for rank in ours], [ranks[rank] for rank in ours], "from_detached", timeout_s
    )
    for rank, answer in zip(ours, answers, strict=True):
        if not answer.is_built:
            raise WorkerStartError(
                f"{ranks[rank].text} is no rank: the program that started it ended before its worker was built",
                rank=rank,
                node=ranks[rank].node,
                pid=ranks[rank].pid,
                reason="not built",
            )
        ranks[rank] = RankFacts(rank, ranks[rank].node, ranks[rank].node_id, ranks[rank].pid, answer.log_paths)
    groups = [answer.placement_group for answer in answers if answer.placement_group is not None]
    return DetachedActors(
        list(handles),
        [str(entry.get("Name") or "") for entry in entries],
        ranks,
        answers[0].user_class if answers else None,
        answers[0].master if answers else ("", ""),
        list(dict.fromkeys(groups)),
    )


def _entries(handles: Sequence[Any], timeout_s: float) -> list[dict[str, Any]]:
    """What Ray says of each actor. One that was asked for just now may be unknown for a moment, or have no node."""
    deadline_s = time.monotonic() + timeout_s
    known_by_s = time.monotonic() + min(timeout_s, _KNOWN_WITHIN_S)
    while True:
        table = actor_table()
        entries = [table.get(handle._actor_id.hex(), {}) for handle in handles]
        unknown = not all(entries) and time.monotonic() < known_by_s
        starting = any(entry and entry["State"] in STARTING for entry in entries) and time.monotonic() < deadline_s
        if not unknown and not starting:
            return entries
        time.sleep(_POLL_S)


def _is_gone(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("State", "DEAD") == "DEAD")


def _facts_of(rank: int, entry: Mapping[str, Any]) -> RankFacts:
    address = entry["Address"]
    node_id = str(address["NodeID"])
    return RankFacts(rank, f"{address['IPAddress']} ({node_id[:12]})", node_id, entry.get("Pid") or None)
