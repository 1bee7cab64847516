"""Rows between processes that only name their session: `tq node` on each node, `attach` in each process."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.support.nodes import Nodes
from tests.support.nursery import Nursery

pytest.importorskip("pyarrow.flight")
pytestmark = pytest.mark.timeout(120)


def _places(pipe: Connection, part: str, p: str) -> None:
    import transferqueue as tq

    pipe.send(tq.attach(part).client.place_partition(p))
    tq.close()


def _puts(pipe: Connection, part: str, p: str, q: str) -> None:
    import torch
    from tensordict import TensorDict

    import transferqueue as tq

    tq.attach(part)
    tq.kv_batch_put(["a", "b"], p, TensorDict({"x": torch.ones(2, 3)}, [2]), tags=[{"n": 1}, {"n": 2}])
    pipe.send(tq.put(TensorDict({"x": torch.arange(6)}, [6]), partition_id=q))
    pipe.recv()
    tq.close()


def _gets(pipe: Connection, part: str, p: str, q: str, checkpoints: str) -> None:
    import transferqueue as tq
    from transferqueue.streaming import StreamingDataset

    session = tq.attach(part)
    meta = pipe.recv()
    keyed = tq.kv_batch_get(["b", "a"], p, timeout=30)
    stream = StreamingDataset(q, fields="x", batch_size=4, task_name="t", total_rows=6, timeout=30)
    streamed = [number for rows, _ in stream for number in rows["x"].tolist()]
    stats = tq.stats(q)
    pipe.send((tq.get_data(meta)["x"].tolist(), keyed["x"].tolist(), tq.kv_list(p), streamed, stats.rows["total"]))
    client: Any = session.client
    pipe.send((client._store.counts(), len(client._fetcher._sources._transport._idle)))
    with pytest.raises(NotImplementedError, match=session.name):
        session.client.save_controller_checkpoint("/nowhere")
    tq.save_checkpoint(f"{checkpoints}/{p}", metadata=p)
    tq.clear_partition(p)
    tq.clear_partition(q)
    pipe.send(tq.load_checkpoint(f"{checkpoints}/{p}"))
    pipe.send((tq.get_data(meta)["x"].tolist(), tq.kv_list(p)))
    tq.clear_partition(p)
    tq.close()


def test_what_one_node_puts_another_gets(nursery: Nursery, nodes: Nodes, tmp_path: Path) -> None:
    # The first to use a partition is its home: that of `p` is where rows are read, that of `q` where they are put.
    for producer, consumer in ((1, 0), (0, 1)):
        p, q = f"p{producer}", f"q{producer}"
        places = nursery.start(_places, nodes.part(consumer), p)
        assert places.receive() == consumer
        assert places.wait() == 0
        puts = nursery.start(_puts, nodes.part(producer), p, q)
        meta = puts.receive()
        gets = nursery.start(_gets, nodes.part(consumer), p, q, str(tmp_path))
        gets.pipe.send(meta)
        rows, keyed, listed, streamed, total = gets.receive()
        assert rows == streamed == list(range(6))
        assert keyed == [[1.0] * 3] * 2
        assert listed == {p: {"a": {"n": 1}, "b": {"n": 2}}}
        assert total == 6
        counts, connections = gets.receive()
        assert counts["pulled_bytes"] >= 6 * 8 + 2 * 3 * 4
        assert connections == 1, "rows come over a port of their own"
        assert gets.receive() == p
        assert gets.receive() == (rows, listed)
        assert gets.wait() == 0
        puts.pipe.send("close")
        assert puts.wait() == 0
