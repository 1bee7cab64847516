"""A cluster in one process, and partitions whose home is its first node; nodes that are processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nodes.one_process import OneProcess, one_process
from tests.support.nodes import Nodes, nodes_of
from tests.support.nursery import Nursery


@pytest.fixture(scope="module")
def cluster() -> Iterator[OneProcess]:
    with one_process(3) as made:
        yield made


_numbers = iter(range(1000))


@pytest.fixture
def p(cluster: OneProcess) -> Iterator[str]:
    """A partition whose home is node 0."""
    name = f"p{next(_numbers)}"
    cluster.at[0].client.place_partition(name)
    yield name
    for node in cluster.at:
        node.client.clear_partition(name)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started


@pytest.fixture(scope="module")
def nodes(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Two nodes, `tq node` processes."""
    with nodes_of(nursery, tmp_path_factory.mktemp("nodes"), 2) as started:
        yield started
