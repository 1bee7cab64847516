"""`all_gather`: two processes with different rows, and what each has afterwards."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from tensordict import TensorDict

from transferqueue.workers import DataProto, DataProtoError
from transferqueue.workers.data_proto import all_gather_data_proto

pytestmark = pytest.mark.timeout(90)

ROWS = (2, 3)
"""Of each rank."""


def _mine(rank: int, rows: int) -> DataProto:
    """Columns of several dtypes, ragged and nested ones, and Python columns whose values have different lengths."""
    first = 10 * rank
    names = torch.arange(first, first + rows)
    ragged = [torch.arange(first + row + 1) for row in range(rows)]
    batch = TensorDict(
        {
            "x": names,
            "half": names.to(torch.bfloat16)[:, None].expand(rows, 3),
            "even": names % 2 == 0,
            "inner": TensorDict({"y": names * 2}, [rows]),
        },
        [rows],
    )
    if rows:
        batch["ragged"] = torch.nested.nested_tensor(ragged, layout=torch.jagged)
    columns = {
        "uid": np.array([f"u{row}" for row in range(first, first + rows)], dtype=object),
        "turns": np.empty(rows, dtype=object),
        "score": np.arange(first, first + rows, dtype=np.float32),
    }
    for row in range(rows):
        columns["turns"][row] = list(range(row))
    return DataProto(batch, columns, {"rank": rank})


def _plain(data: DataProto) -> dict[str, Any]:
    assert data.batch["half"].dtype == torch.bfloat16
    assert data.non_tensor_batch["score"].dtype == np.float32
    return {
        "x": data.batch["x"].tolist(),
        "half": data.batch["half"].tolist(),
        "even": data.batch["even"].tolist(),
        "y": data.batch["inner", "y"].tolist(),
        "ragged": [row.tolist() for row in data.batch["ragged"].unbind()],
        **{name: column.tolist() for name, column in data.non_tensor_batch.items()},
        "rank": data.meta_info["rank"],
    }


def _error(data: Any) -> str:
    try:
        all_gather_data_proto(data)
    except DataProtoError as error:
        return str(error)
    return "none"


def _gathered(rank: int) -> dict[str, Any]:
    """Every collective of this module, in the same order on both ranks; the results as plain values."""
    given = _mine(rank, ROWS[rank])
    found: dict[str, Any] = {"new": _plain(given.all_gather()), "given": _plain(given)}
    all_gather_data_proto(given, dist.group.WORLD)
    found["in place"] = _plain(given)
    part = dist.new_group([1])
    if rank == 1:
        found["part"] = _plain(_mine(rank, 1).all_gather(part))
    some = DataProto.from_dict({"x": torch.arange(4 * rank)}, {"uid": ["u"] * 4 * rank}).all_gather()
    found["rows on one rank"] = (some.batch["x"].tolist(), some.non_tensor_batch["uid"].tolist())
    found["no rows"] = len(DataProto.from_dict({"x": torch.zeros(0)}).all_gather())
    python_only = DataProto(non_tensor_batch={"uid": np.array([rank], dtype=object)}).all_gather()
    found["no tensors"] = (python_only.batch, python_only.non_tensor_batch["uid"].tolist())
    found["different tensors"] = _error(DataProto.from_dict({f"x{rank}": torch.zeros(1)}))
    found["different columns"] = _error(DataProto.from_dict({"x": torch.zeros(1)}, {"uid": ["u"]} if rank else {}))
    return found


def _join(rank: int, store: str) -> None:
    timeout = timedelta(seconds=60)
    dist.init_process_group("gloo", f"file://{store}", timeout=timeout, rank=rank, world_size=len(ROWS))


def _other_rank(store: str, answer: Any) -> None:
    torch.set_num_threads(1)
    _join(1, store)
    answer.send(_gathered(1))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    """What each rank found: 0 is this process."""
    store = str(Path(tmp_path_factory.mktemp("gather")) / "store")
    spawning = multiprocessing.get_context("spawn")
    receiving, sending = spawning.Pipe(duplex=False)
    other = spawning.Process(target=_other_rank, args=(store, sending))
    other.start()
    sending.close()
    try:
        _join(0, store)
        mine = _gathered(0)
        theirs = receiving.recv()
        dist.destroy_process_group()
        other.join(30)
        assert other.exitcode == 0
        yield [mine, theirs]
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        if other.is_alive():
            other.kill()
            other.join()


@pytest.mark.parametrize("how", ["new", "in place"])
def test_every_rank_has_the_rows_of_all_in_rank_order(ranks: list[dict[str, Any]], how: str) -> None:
    names = [0, 1, 10, 11, 12]
    for rank, found in enumerate(ranks):
        assert found[how] == {
            "x": names,
            "half": [[float(name)] * 3 for name in names],
            "even": [name % 2 == 0 for name in names],
            "y": [2 * name for name in names],
            "ragged": [list(range(name + 1)) for name in names],
            "uid": [f"u{name}" for name in names],
            "turns": [[], [0], [], [0], [0, 1]],
            "score": [float(name) for name in names],
            "rank": rank,
        }


def test_the_method_leaves_its_object_alone(ranks: list[dict[str, Any]]) -> None:
    assert [found["given"]["x"] for found in ranks] == [[0, 1], [10, 11, 12]]


def test_only_ranks_of_the_group_take_part(ranks: list[dict[str, Any]]) -> None:
    assert ranks[1]["part"]["x"] == [10]


def test_ranks_without_rows_and_batches_without_tensors(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert found["rows on one rank"] == ([0, 1, 2, 3], ["u"] * 4)
        assert found["no rows"] == 0
        assert found["no tensors"] == (None, [0, 1])


def test_different_columns_are_refused_on_every_rank(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert (
            "rank 1 has the tensors ['x1'] and the Python columns [], rank 0 ['x0'] and []"
            in found["different tensors"]
        )
        assert "Python columns ['uid'], rank 0 ['x'] and []" in found["different columns"]


def test_what_is_no_data_proto_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a DataProto, got TensorDict"):
        all_gather_data_proto(TensorDict({}, [0]))  # type: ignore[arg-type]
