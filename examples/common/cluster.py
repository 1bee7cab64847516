"""A Ray cluster for an example: of one node, or of several that all lie on this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_REPOSITORY = Path(__file__).resolve().parents[2]
_OBJECT_STORE_BYTES = 256 * 1024 * 1024
"""Ray's own store carries next to nothing here; its default would be a third of the machine's memory."""


@contextmanager
def ray_cluster(num_cpus: int, nodes: Sequence[Mapping[str, float]] = ()) -> Iterator[None]:
    """`start_ray`; with `nodes`, the custom resources of each further node beside the driver's."""
    if not nodes:
        start_ray(num_cpus)
        import ray

        try:
            yield
        finally:
            ray.shutdown()
        return
    _set_environment()
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": num_cpus, "object_store_memory": _OBJECT_STORE_BYTES}
    )
    try:
        for resources in nodes:
            cluster.add_node(num_cpus=num_cpus, object_store_memory=_OBJECT_STORE_BYTES, resources=dict(resources))
        ray.init(address=cluster.address, logging_level=logging.WARNING)
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def start_ray(num_cpus: int) -> None:
    """A cluster of one node in this process; ranks run at normal priority and find this package."""
    _set_environment()
    import ray

    ray.init(
        address="local",  # not a cluster that somebody else started on this machine
        num_cpus=num_cpus,
        include_dashboard=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        logging_level=logging.WARNING,
    )


def _set_environment() -> None:
    """What the processes that Ray starts read."""
    # Niceness 15, Ray's default for workers, would make every number a measure of what else runs on the machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # By default Ray starts one idle worker per CPU ahead. Ranks have environments of their own and could not use them.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    # Inherited by the ranks: where this package is, and one thread each, for there are more ranks than cores.
    paths = [str(_REPOSITORY), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    os.environ["OMP_NUM_THREADS"] = "1"
