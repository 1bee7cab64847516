"""What runs on the nodes of a Ray cluster in tests of this folder, as tasks and as a job of its own."""

from __future__ import annotations

import os
import sys
from typing import Any


def whereabouts() -> tuple[str, str, str | None, int]:
    """(session, this node's part of it, what the environment says, pid) of a worker that was told nothing."""
    import transferqueue as tq
    from transferqueue.session import current_session

    client = tq.get_client()
    return (
        client.session,
        current_session().attachment.paths.name,
        os.environ.get("TRANSFERQUEUE_SESSION"),
        os.getpid(),
    )


def attach_outcome(name: str) -> str:
    """How attaching to a session goes in a fresh worker: its part here, or the error."""
    import transferqueue as tq

    try:
        session = tq.attach(name)
    except tq.TransferQueueError as error:
        return f"{type(error).__name__}: {error}"
    part = session.attachment.paths.name
    tq.close()
    return part


def make_rows(name: str, partition: str, count: int) -> list[int]:
    """Makes rows in this node's own store, below everything that knows other nodes; their global indexes."""
    return _with_own_store(name, lambda store: store.publish(partition, count=count).indexes.tolist())


def list_rows(name: str, partition: str) -> list[int]:
    """The global indexes that this node's own store has."""
    return _with_own_store(name, lambda store: store.list_rows(partition).indexes.tolist())


def _with_own_store(name: str, use: Any) -> list[int]:
    from transferqueue import cluster
    from transferqueue.storage.attachment import attach

    attachment = attach(cluster.session_here(name, 30.0))
    try:
        found: list[int] = use(attachment.store)
        return found
    finally:
        attachment.detach()


def put_rows(partition: str, rows: int) -> Any:
    """Puts rows of 64 KiB and a name; their metadata."""
    import torch
    from tensordict import TensorDict

    import transferqueue as tq

    values = torch.arange(rows, dtype=torch.int64)[:, None].expand(rows, 8192).contiguous()
    return tq.put(TensorDict({"values": values, "row": torch.arange(rows)}, [rows]), partition_id=partition)


def add_field(metadata: Any) -> Any:
    """Puts one more field on rows that another node made; their metadata."""
    from tensordict import TensorDict

    import transferqueue as tq

    got = tq.get_data(metadata, fields=["row"])
    return tq.put(TensorDict({"double": got["row"] * 2}, got.batch_size), metadata)


def read_rows(metadata: Any) -> tuple[str, list[int], bool]:
    """(this node's part, the rows' numbers, whether each holds what was put)."""
    import transferqueue as tq
    from transferqueue.session import current_session

    got = tq.get_data(metadata)
    whole = bool((got["values"] == got["row"][:, None]).all())
    return current_session().attachment.paths.name, got["row"].tolist(), whole


def pulled_nbytes() -> int:
    """Bytes of payload that this node has pulled from others, as its metrics page says."""
    import transferqueue as tq
    from tests.support.scrape import scrape

    tq.get_client()
    return int(scrape(tq.get_metrics_endpoint()).value("node_bytes_total", direction="pulled"))


class Creator:
    """An actor that starts a session and keeps it open."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import transferqueue as tq

        self.session = tq.init(**settings)

    def made(self) -> str:
        """The session's name."""
        assert self.session.creator
        return self.session.name


def main() -> None:
    """A job with a Ray namespace of its own: ADDRESS NAMESPACE SHARED. Says the session that it gets without a name, of
    node b only, and after a line the one that it shares by its name; then it waits to be killed."""
    import logging

    import ray

    import transferqueue as tq

    address, namespace, shared = sys.argv[1:]
    ray.init(address=address, namespace=namespace, logging_level=logging.ERROR, log_to_driver=False)
    joined = tq.init(session=shared)
    print("shared", joined.name, joined.creator, joined.attachment.paths.name, flush=True)
    joined.close()
    os.environ.pop("TRANSFERQUEUE_SESSION", None)
    own = tq.init(**{"storage.size": "16MiB", "cluster.resource": "b", "cluster.lost_after_s": 3})
    parts = [node.session for node in own.nodes()]
    print("own", own.name, own.creator, *parts, flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
