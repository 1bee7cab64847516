"""The named actor that programs look up. It holds no state but the configuration: the rest it reads from the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transferqueue.compat.ray_system import CONTROLLER_NAME, NAMESPACE

if TYPE_CHECKING:
    from transferqueue.client import TransferQueueClient


class TransferQueueController:
    """Answers from the index of a session, to which it attaches when it is first asked for more than `get_config`."""

    def __init__(self, session_name: str, config: Any) -> None:
        self._session_name = session_name
        self._config = config

    def get_config(self) -> Any:
        """The configuration that the system was started with. It names the session, so that a `StreamingDataset` made
        from it works in any process."""
        return self._config

    def list_partitions(self) -> list[str]:
        """Names of the partitions, empty ones included."""
        return self._client().get_partition_list()

    def clear_partition(self, partition_id: str, clear_consumption: bool = True) -> None:
        """Removes a partition with its rows and what its tasks consumed; an unknown one is no error."""
        self._client().clear_partition(partition_id)

    def get_partition_snapshot(self, partition_id: str) -> Any:
        """The partition's `PartitionSnapshot`; None when there is none of that name."""
        from transferqueue.compat.partition_snapshot import PartitionSnapshot, ProductionStatus

        client = self._client()
        store = client._open()
        listing = store.list_rows(partition_id)
        if not listing.partition_found:
            return None
        indexes = listing.indexes.tolist()
        fields = store.field_names(partition_id)
        _, living, ready, _ = store.production(partition_id, fields, listing.indexes)
        return PartitionSnapshot(
            partition_id=partition_id,
            keys_mapping={key: index for key, index in zip(listing.keys, indexes, strict=True) if key is not None},
            global_indexes=set(indexes),
            custom_meta=dict(zip(indexes, client._tags.decode_all(listing.tags), strict=True)),
            field_name_mapping={field: column for column, field in enumerate(fields)},
            production_status=ProductionStatus(living, ready),
        )

    def _client(self) -> TransferQueueClient:
        from transferqueue.session import attach

        return attach(self._session_name).client


def start_controller(session_name: str, config: Any) -> Any:
    """Starts the actor of the cluster's system on this node, where its session is, and returns its handle.

    Args:
        session_name: a session of this machine.
        config: what `get_config` answers.

    Raises:
        ValueError: the cluster has one already.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
    actor: Any = ray.remote(TransferQueueController)
    # It takes no CPU: a cluster whose CPUs are all promised to placement groups has room for it.
    return actor.options(name=CONTROLLER_NAME, namespace=NAMESPACE, num_cpus=0, scheduling_strategy=here).remote(
        session_name, config
    )
