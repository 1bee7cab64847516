"""What `RayResourcePool.describe` returns and prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transferqueue.controller.describe.text import aligned, ranges_text
from transferqueue.controller.pools.pool_facts import BundleFacts, PoolFacts

_HEADER = ("rank", "local", "node", "placement group:bundle", "devices", "groups")


@dataclass(frozen=True, repr=False)
class PoolDescription:
    """A pool as it is now. ``str()`` is what is printed, ``repr()`` its first line; `facts` are for programs. No
    rank is asked for it."""

    facts: PoolFacts

    @property
    def bundle_nodes(self) -> dict[tuple[str, int], str]:
        """``(placement group, bundle index)`` -> address of the node."""
        return {(bundle.placement_group, bundle.bundle_index): bundle.node_ip for bundle in self.facts.bundles}

    def head(self) -> list[str]:
        """The lines before the table of bundles."""
        facts = self.facts
        room = f"reserved ({facts.strategy})" if facts.is_reserved else "not reserved yet"
        if facts.detached:
            room += ", outlives the program"
        lines = [
            f"pool {facts.name!r}: world size {facts.world_size}, ranks per node {list(facts.ranks_per_node)}, {room}",
            f"a bundle is {_amounts(facts.bundle)}; each of up to {facts.max_colocate_count} groups asks for "
            f"{_amounts(_requested(facts.request))} of it; used by {', '.join(facts.users) or 'none'}",
        ]
        groups: dict[tuple[str, str], list[BundleFacts]] = {}
        for bundle in facts.bundles:
            groups.setdefault((bundle.placement_group, bundle.placement_group_id), []).append(bundle)
        for (name, group_id), bundles in groups.items():
            nodes = ", ".join(dict.fromkeys(f"{one.node_ip} ({one.node_id[:12]})" for one in bundles))
            indexes = ranges_text([one.bundle_index for one in bundles])
            lines.append(f"placement group {name or '-'} ({group_id[:12]}): bundles {indexes} on {nodes}")
        return lines

    def __repr__(self) -> str:
        return f"<{self.head()[0]}>"

    def __str__(self) -> str:
        return "\n".join(
            [*self.head(), *(aligned([_HEADER, *map(_row, self.facts.bundles)]) if self.facts.bundles else [])]
        )


def _row(bundle: BundleFacts) -> tuple[str, ...]:
    return (
        str(bundle.rank),
        f"{bundle.local_rank} of {bundle.local_world_size}",
        bundle.node_ip,
        bundle_text(bundle),
        ",".join(bundle.devices) or ("not known yet" if not bundle.users else "none"),
        ", ".join(bundle.users) or "none",
    )


def bundle_text(bundle: BundleFacts) -> str:
    """``"train_0_4f2a:3"``: placement group and index in it."""
    return f"{bundle.placement_group or bundle.placement_group_id[:12]}:{bundle.bundle_index}"


def _requested(options: Mapping[str, Any]) -> dict[str, float]:
    """What ``.options(...)`` is told, by the names of the resources."""
    named = {"CPU": options.get("num_cpus", 0.0), "GPU": options.get("num_gpus", 0.0), **options.get("resources", {})}
    return {name: amount for name, amount in named.items() if amount}


def _amounts(resources: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount:g}" for name, amount in resources.items())
