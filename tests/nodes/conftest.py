"""A cluster in one process, and partitions whose home is its first node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nodes.one_process import OneProcess, one_process


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
