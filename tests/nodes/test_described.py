"""Rows that lie at their home as such are described with their place, to who may have to bring them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.nodes.one_process import OneProcess, one_process
from transferqueue.errors import CorruptSegmentError
from transferqueue.nodes.transport.protocol import PayloadRequest

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def cluster() -> Iterator[OneProcess]:
    with one_process(3) as cluster:
        cluster.at[0].client.place_partition("p")
        yield cluster


@pytest.fixture
def described(cluster: OneProcess, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, PayloadRequest]]:
    """(node, request) of each description that node 2 asked for by itself."""
    asked: list[tuple[int, PayloadRequest]] = []
    transport: Any = cluster.at[2].client._fetcher._sources._transport
    ask = transport.describe

    def describe(source: Any, what: PayloadRequest, *, until_s: float | None = None) -> Any:
        asked.append((source.ordinal, what))
        return ask(source, what, until_s=until_s)

    monkeypatch.setattr(transport, "describe", describe)
    return asked


def batch(value: int) -> TensorDict:
    ragged = torch.nested.nested_tensor([torch.full((n,), value) for n in (3, 0, 5, 1)], layout=torch.jagged)
    return TensorDict({"x": torch.full((4, 2), value), "r": ragged}, [4])


def same(found: TensorDict, value: int, rows: int = 4) -> bool:
    expected = batch(value)
    return torch.equal(found["x"], expected["x"][:rows]) and all(
        torch.equal(left, right) for left, right in zip(found["r"].unbind(), expected["r"].unbind()[:rows], strict=True)
    )


def test_rows_of_the_home_are_pulled_as_they_were_described_with_their_place(
    cluster: OneProcess, described: list[Any]
) -> None:
    home, reader = cluster.at[0].client, cluster.at[2].client
    for value in range(3):
        meta = home.put(batch(value), partition_id="p")
        assert same(reader.get_data(meta), value)
    assert not described
    assert same(reader.get_data(meta), 2)
    meta = home.put(batch(3), partition_id="p")
    assert same(reader.get_data(meta), 3)
    assert [ordinal for ordinal, _ in described] == [0], "the last rows were here: so may these have been"
    meta = home.put(batch(4), partition_id="p")
    assert same(reader.get_data(meta, timeout=10), 4)
    assert len(described) == 1


def test_what_is_here_in_part_or_lies_elsewhere_is_asked_for(cluster: OneProcess, described: list[Any]) -> None:
    home, reader = cluster.at[0].client, cluster.at[2].client
    meta = home.put(batch(1), partition_id="p")
    assert same(reader.get_data(meta[:2]), 1, rows=2)
    assert same(reader.get_data(meta), 1)
    assert [what.rows.tolist() for _, what in described] == [[2, 3]]
    pads = home.put(batch(2), partition_id="p")
    assert reader.get_data(pads[:3].pad_to_divisor(8))["x"].tolist() == [[2, 2]] * 8
    assert described[-1][1].rows.tolist() == pads.global_indexes[:3]
    before = len(described)
    meta = cluster.at[1].client.put(batch(3), partition_id="p")
    assert same(reader.get_data(meta), 3)
    assert [ordinal for ordinal, _ in described[before:]] == [1]
    assert reader.get_data(home.put(batch(5), partition_id="p"), fields=["x"])["x"].tolist() == [[5, 5]] * 4
    assert len(described) == before + 1


def test_a_description_that_is_none_is_refused(cluster: OneProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    home, reader = cluster.at[0].client, cluster.at[2].client
    meta = home.put(batch(1), partition_id="p")
    for wrong in ([["x", [], 0, 8]], ["x"], [["x", [[0, b"", 8]], 0, 8], ["r", 1]], [["x", [[0, b"", 16]], 1, 16]]):
        monkeypatch.setattr("transferqueue.node_service.home_rows.describe", lambda *_, wrong=wrong: wrong)
        with pytest.raises(CorruptSegmentError):
            reader.get_data(meta)
    monkeypatch.undo()
    assert same(reader.get_data(meta), 1)
