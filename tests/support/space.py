"""The accounts of a store."""

from __future__ import annotations

from transferqueue._native import Store


def is_settled(store: Store) -> bool:
    """After a round of cleaning up: nothing is pending, retired or leased, and every byte has one owner
    (what living processes reserved ahead is theirs)."""
    store.reap()
    store.reclaim()
    stats = store.stats()
    return (
        stats["pending_bytes"] == stats["retired_bytes"] == stats["leased_bytes"] == 0
        and stats["spill_pending_bytes"] == stats["spill_retired_bytes"] == 0
        and stats["spilled_bytes"] + stats["spill_free_extent_bytes"] == stats["spill_reserved_bytes"]
        and stats["used_bytes"] + stats["arena_bytes"] + stats["free_extent_bytes"] == stats["reserved_bytes"]
    )
