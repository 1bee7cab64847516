"""Large values for all ranks are put into the object store once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from transferqueue.controller import shared_arguments
from transferqueue.controller.shared_arguments import approximate_nbytes, shared_once
from transferqueue.metadata import BatchMeta
from transferqueue.workers import Broadcast, PerRank

LARGE = torch.zeros(100_000)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    values: list[Any] = []

    def put(value: Any) -> str:
        values.append(value)
        return f"ref{len(values)}"

    monkeypatch.setattr(shared_arguments, "require_ray", lambda what: SimpleNamespace(put=put))
    return values


def test_large_broadcast_values_become_one_reference(store: list[Any]) -> None:
    weights = {"layer": {"w": LARGE}}
    args, kwargs = shared_once([Broadcast(weights), 3, BatchMeta.empty()], {"batch": TensorDict({"x": LARGE}, [])}, 4)
    assert isinstance(args[0], Broadcast)
    assert args[0].value == "ref1"
    assert kwargs["batch"].value == "ref2"
    assert store[0] is weights
    assert args[1] == 3
    assert isinstance(args[2], BatchMeta)


def test_values_that_differ_by_rank_or_are_small_are_sent_as_they_are(store: list[Any]) -> None:
    per_rank = PerRank([LARGE, LARGE.clone()])
    small = torch.zeros(10)
    args, _ = shared_once([per_rank, [LARGE, LARGE], small, "text"], {}, 2)
    assert args[0] is per_rank
    assert args[2] is small
    assert store == []
    assert shared_once([LARGE], {}, 1)[0][0] is LARGE, "one rank gets it in the call"


def test_what_the_ranks_of_a_replica_share_is_put_once_for_the_replica(store: list[Any]) -> None:
    other, alone = LARGE.clone(), LARGE.clone()
    shards = PerRank([LARGE, LARGE, other, other, alone, 1, 1])
    [sent], named = shared_once([shards], {"small": PerRank([3] * 7)}, 7)
    assert isinstance(sent, PerRank)
    assert list(sent) == ["ref1", "ref1", "ref2", "ref2", alone, 1, 1]
    assert [value is shard for value, shard in zip(store, (LARGE, other), strict=True)] == [True, True]
    assert list(named["small"]) == [3] * 7


def test_sizes() -> None:
    jagged = torch.nested.nested_tensor([torch.zeros(3), torch.zeros(5)], layout=torch.jagged)
    sizes = [approximate_nbytes(value) for value in (LARGE, np.zeros(10), b"abc", "abcd", [LARGE, b"a"], jagged, None)]
    assert sizes == [400_000, 80, 3, 4, 400_001, 32, 0]
