"""What processes on a node do in tests of this folder: works of a `Nursery`."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection


def attached(pipe: Connection, name: str) -> None:
    """Attaches, says what it is attached to, and waits to be told to close."""
    import transferqueue as tq

    try:
        session = tq.attach(name)
    except tq.TransferQueueError as error:
        pipe.send((type(error).__name__, str(error)))
        return
    pipe.send((session.name, session.client.session, session.attachment.paths.name, session.creator))
    pipe.recv()
    tq.close()
    pipe.send("closed")


def by_environment(pipe: Connection, name: str) -> None:
    """Finds the session that the environment names."""
    import transferqueue as tq

    os.environ["TRANSFERQUEUE_SESSION"] = name
    pipe.send((tq.get_client().session, tq.init().name, [node.ordinal for node in tq.init().nodes()]))
    tq.close()


def makes_rows(pipe: Connection, part: str, partition: str, count: int) -> None:
    """Makes rows in a node's own store, below everything that knows other nodes; tells their global indexes."""
    from transferqueue.storage.attachment import attach

    attachment = attach(part)
    made = attachment.store.publish(partition, count=count)
    attachment.detach()
    pipe.send(made.indexes.tolist())


def lists_rows(pipe: Connection, part: str, partition: str) -> None:
    """Tells the global indexes that a node's own store has."""
    from transferqueue.storage.attachment import attach

    attachment = attach(part)
    indexes = attachment.store.list_rows(partition).indexes.tolist()
    attachment.detach()
    pipe.send(indexes)


def looks_at_nodes(pipe: Connection, part: str, network: str) -> None:
    """In a network namespace: answers each message with (ordinal, alive) of all nodes, or the name of the error."""
    import transferqueue as tq
    from tests.support.network import enter

    enter(network)
    session = tq.attach(part)
    while pipe.recv() is not None:
        try:
            pipe.send([(node.ordinal, node.alive) for node in session.nodes()])
        except tq.TransferQueueError as error:
            pipe.send(type(error).__name__)
    tq.close()


def puts_and_gets(pipe: Connection, part: str, partition: str) -> None:
    """Puts 1, and then what it is told, as the value of a key, and tells what it gets for it; until None."""
    import torch
    from tensordict import TensorDict

    import transferqueue as tq

    client = tq.attach(part).client
    value = 1
    while value is not None:
        client.kv_batch_put(["key"], partition, TensorDict({"x": torch.tensor([value])}, [1]))
        pipe.send(int(client.kv_batch_get(["key"], partition)["x"][0]))
        value = pipe.recv()
    tq.close()
