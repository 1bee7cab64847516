"""Where each call of a client runs when the session spans several nodes: one table of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PARTITION, METADATA, CLAIM, OWN = "partition", "metadata", "claim", "own"


@dataclass(frozen=True)
class Route:
    """A call that moves no payload: it is sent whole to the home of the partition, one round trip.

    Attributes:
        by: what says which partition: the argument ``partition_id`` (PARTITION), metadata, which may name several
            partitions and is split (METADATA), or a claim (CLAIM). OWN: a method of `ClusterClient` decides.
        creates: a partition that has no home yet gets one: the caller's node. Else the call is made on the own node,
            which says what it says of partitions that do not exist.
        changes: it changes rows or what is known of them, which happens once, however often the call is made again.
        waits: it has a `timeout` and may wait for rows: at the home, a slice at a time.
    """

    by: str
    creates: bool = False
    changes: bool = False
    waits: bool = False


ROUTED: Mapping[str, Route] = {
    "ack": Route(CLAIM, changes=True),
    "check_consumption_status": Route(PARTITION),
    "check_production_status": Route(PARTITION),
    "claim": Route(PARTITION, creates=True, changes=True, waits=True),
    "clear_partition": Route(PARTITION, changes=True),
    "clear_samples": Route(METADATA, changes=True),
    "coalesce": Route(METADATA, changes=True),
    "extend": Route(CLAIM, changes=True),
    "fields_meta": Route(PARTITION),
    "get_consumption_status": Route(PARTITION),
    "get_limits": Route(PARTITION),
    "get_meta": Route(PARTITION, creates=True, changes=True, waits=True),
    "get_partition_list": Route(OWN),
    "get_production_status": Route(PARTITION),
    "kv_clear": Route(PARTITION, changes=True),
    "kv_list": Route(OWN),
    "kv_retrieve_keys": Route(PARTITION),
    "kv_retrieve_meta": Route(PARTITION, creates=True, changes=True, waits=True),
    "nack": Route(CLAIM, changes=True),
    "node_ordinals": Route(OWN),
    "place_partition": Route(OWN),
    "reset_consumption": Route(PARTITION, changes=True),
    "row_nodes": Route(OWN),
    "set_custom_meta": Route(METADATA, changes=True),
    "set_limits": Route(OWN, changes=True),
    "set_weight_version": Route(PARTITION, creates=True, changes=True),
    "stats": Route(OWN),
    "wait": Route(PARTITION, creates=True, waits=True),
}

PAYLOAD_CALLS = frozenset(
    {
        "alloc",
        "get_as",
        "get_data",
        "get_data_with_report",
        "kv_batch_get",
        "kv_batch_get_by_meta",
        "kv_batch_put",
        "kv_put",
        "prefetch",
        "put",
        "row_shapes",
    }
)
"""What moves payload: rows are written and read in the own node's store, and the home is told or asked of them."""

LOCAL = frozenset(
    {
        "close",
        "closed",
        "count_method",
        "load_checkpoint",
        "load_controller_checkpoint",
        "load_storage_checkpoint",
        "save_checkpoint",
        "save_controller_checkpoint",
        "save_storage_checkpoint",
        "session",
        "trim",
    }
)
"""What concerns the own process or node only, and checkpoints, which one process leads."""
