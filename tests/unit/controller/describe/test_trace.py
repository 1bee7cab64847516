"""What is told of the calls on a group while they happen."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from transferqueue.controller import Broadcast, LocalWorkerGroup, PerRank
from transferqueue.controller.describe.sent_value import sent_value
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers import (
    DataProto,
    Dispatch,
    Execute,
    Worker,
    make_nd_compute_dataproto_dispatch_fn,
    register,
)

pytestmark = pytest.mark.timeout(60)

let_go = threading.Event()


class Traced(Worker):
    """Of three ranks 0 and 1 are a replica, of which 0 collects."""

    def __init__(self) -> None:
        super().__init__()
        self._register_dispatch_collect_info("mesh", dp_rank=self.rank // 2, is_collect=self.rank != 1)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("mesh"))
    def step(self, batch: TensorDict, scale: float) -> TensorDict:
        return TensorDict({"y": batch["x"] * scale}, batch_size=batch.batch_size)

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, auto_padding=True, blocking=False)
    def padded(self, data: DataProto) -> DataProto:
        return data

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def save(self, path: str) -> str:
        return path

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def fail(self) -> None:
        raise ValueError("no luck\nat all")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def wait_on(self, rank: int) -> None:
        if self.rank == rank:
            let_go.wait(30)

    def plain(self, value: int) -> int:
        return value


@pytest.fixture
def group() -> Iterator[LocalWorkerGroup]:
    with LocalWorkerGroup(Traced, 3) as group:
        yield group


def test_rows_shapes_and_who_is_collected(group: LocalWorkerGroup, capsys: pytest.CaptureFixture[str]) -> None:
    batch = TensorDict({"x": torch.zeros(3, 4)}, batch_size=[3])
    with group.trace() as trace:
        assert group.step(batch, Broadcast(2.0))["y"].shape == (3, 4)
    group.step(batch, Broadcast(2.0))
    (call,) = trace.calls
    assert (call.method, call.state, call.collected) == ("Traced.step", "done", (0, 2))
    assert call.rows == {0: 2, 1: 2, 2: 1}
    assert call.sent[2]["batch"].shapes == {"x": "(1, 4) float32"}
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "[1] Traced.step: sent to ranks 0-2",
        "    ranks 0-1: batch: TensorDict 2 rows, x (2, 4) float32; scale: float 2.0",
        "    rank 2: batch: TensorDict 1 rows, x (1, 4) float32; scale: float 2.0",
    ]
    assert lines[3].startswith("[1] Traced.step: collected from ranks 0, 2 after 0.")
    assert len(lines) == 4, "nothing of the mesh's questions, and nothing after the trace"


def test_pads(group: LocalWorkerGroup) -> None:
    data = DataProto.from_dict({"x": torch.arange(4)}, {"uid": np.array(["a", "b", "c", "d"], dtype=object)})
    output = io.StringIO()
    with group.trace(file=output) as trace:
        future = group.padded(data)
        assert trace.calls[0].state == "running"
        assert len(future.get()) == 4
    (call,) = trace.calls
    assert (call.rows, call.pads) == ({0: 2, 1: 2, 2: 2}, {0: 0, 1: 0, 2: 2})
    assert call.collected == (0, 1, 2)
    assert "rank 2: data: DataProto 2 rows, 2 pads, x (2,) int64, uid (2,) object" in output.getvalue()


def test_every_way_to_call(group: LocalWorkerGroup) -> None:
    part = group[1:]
    with group.trace(file=io.StringIO()) as trace, group.trace(file=io.StringIO()) as second:
        assert group.save("here") == "here"
        group.execute_all_sync("plain", PerRank([1, 2, 3]))
        group.execute_rank_sync(1, "plain", value=5)
        group.execute_all_async("plain", 4).get()
        part.execute_all_sync("plain", Broadcast(7))
    assert [list(call.sent) for call in trace.calls] == [[0], [0, 1, 2], [1], [0, 1, 2], [1, 2]]
    assert [call.collected for call in trace.calls] == [(0,), (0, 1, 2), (1,), (0, 1, 2), (1, 2)]
    assert str(trace.calls[0].sent[0]["path"]) == "str 'here'"
    assert [str(arguments["argument 0"]) for arguments in trace.calls[1].sent.values()] == ["int 1", "int 2", "int 3"]
    assert str(trace.calls[2].sent[1]["value"]) == "int 5"
    assert [call.method for call in second.calls] == [call.method for call in trace.calls]


def test_a_call_that_fails(group: LocalWorkerGroup, capsys: pytest.CaptureFixture[str]) -> None:
    with group.trace() as trace:
        with pytest.raises(ValueError, match="no luck"):
            group.fail()
        with pytest.raises(AttributeError):
            group.execute_all_async("nothing").get()
    assert [call.state for call in trace.calls] == ["failed", "failed"]
    assert "[1] Traced.fail: failed after 0." in capsys.readouterr().out


def test_a_rank_that_does_not_answer(group: LocalWorkerGroup) -> None:
    let_go.clear()
    output = io.StringIO()
    try:
        with group.trace(timeout_s=0.1, file=output):
            future = group.wait_on(1)
            while "no answer" not in output.getvalue():
                assert not let_go.wait(0.02)
            assert "[1] Traced.wait_on: no answer after 0." in output.getvalue()
            assert output.getvalue().rstrip().endswith("from rank 1")
            let_go.set()
            future.get(timeout_s=30)
            assert "collected from ranks 0-2" in output.getvalue()
    finally:
        let_go.set()


def test_metadata_says_its_rows_and_pads() -> None:
    schema = {"x": {"dtype": torch.float32, "shape": (4,), "is_nested": False, "is_non_tensor": False}}
    meta = BatchMeta([3, 4, 9], ["train"] * 3, field_schema=schema).pad_to_divisor(4)
    value = sent_value(meta)
    assert (value.rows, value.pads) == (4, 1)
    assert str(value).startswith("BatchMeta 4 rows [3-4, 9")
    assert "1 pad, x (4,) float32" in str(value)
    keys = KVBatchMeta([f"k{i}" for i in range(8)], [{}] * 8, partition_id="train", fields=["x"])
    assert str(sent_value(keys)) == "KVBatchMeta 8 rows [k0, k1, k2, k3, k4, k5 and 2 more], x"


def test_other_values() -> None:
    jagged = torch.nested.nested_tensor([torch.arange(2), torch.arange(3)], layout=torch.jagged)
    assert sent_value(TensorDict({"p": jagged}, batch_size=[2])).shapes == {"p": "jagged int64"}
    assert str(sent_value(torch.zeros(2, 3))) == "Tensor (2, 3) float32"
    assert str(sent_value([1, 2])) == "list of 2"
    assert str(sent_value("x" * 100)) == f"str '{'x' * 36}..."
    assert str(sent_value(object())) == "object"
