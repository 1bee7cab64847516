"""What processes of ranks are doing, seen from outside: a rank that hangs cannot be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from transferqueue.controller.rank_facts import RankFacts
from transferqueue.workers.ray_runtime import require_ray

_RAY_TITLE = "ray::"
_ON_NODE_TIMEOUT_S = 5.0


def running_calls(ranks: Mapping[int, RankFacts], timeout_s: float = _ON_NODE_TIMEOUT_S) -> dict[int, str]:
    """By the keys of `ranks`, the method that the process runs, ``"Trainer.step"``, as Ray writes it into its title.

    Ranks of other nodes are looked at by a task there; those of a node that does not answer are left out.
    """
    ray = require_ray("running_calls")
    here = ray.get_runtime_context().get_node_id()
    by_node: dict[str, dict[int, int]] = {}
    for key, facts in ranks.items():
        if facts.pid is not None:
            by_node.setdefault(facts.node_id, {})[key] = facts.pid
    found: dict[int, str] = {}
    asked = {}
    for node_id, pids in by_node.items():
        if node_id == here:
            found.update(_by_key(pids, process_titles(list(pids.values()))))
        else:
            on_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id, soft=False)
            looking = ray.remote(process_titles).options(num_cpus=0, max_retries=0, scheduling_strategy=on_node)
            asked[looking.remote(list(pids.values()))] = pids
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=timeout_s) if asked else ([], [])
    for ref in answered:
        try:
            found.update(_by_key(asked[ref], ray.get(ref)))
        except ray.exceptions.RayError:  # the node is gone: its ranks are left out
            continue
    return found


def process_titles(pids: Sequence[int]) -> dict[int, str]:
    """The titles of processes of this node; those that are gone are left out."""
    titles = {}
    for pid in pids:
        try:
            titles[pid] = (
                Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            )
        except OSError:
            continue
    return titles


def _by_key(pids: Mapping[int, int], titles: Mapping[int, str]) -> dict[int, str]:
    found = {key: titles.get(pid, "") for key, pid in pids.items()}
    return {key: title[len(_RAY_TITLE) :] for key, title in found.items() if title.startswith(_RAY_TITLE)}
