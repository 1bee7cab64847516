"""Any column, in any layout and dtype, is after a load what it was before the save."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tensordict import NonTensorStack, TensorDict

import transferqueue as tq
from tests.support.sessions import embedded
from tests.unit.codec.compare import assert_same_column
from tests.unit.codec.test_round_trip import columns

pytestmark = pytest.mark.timeout(120)


@given(st.data())
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
def test_any_column_comes_back_as_it_was(
    store: tq.Session, tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    client = store.client
    n = data.draw(st.integers(1, 4))
    puts = [data.draw(columns(n)) for _ in range(data.draw(st.integers(1, 2)))]
    metas = []
    for number, column in enumerate(puts):
        batch = column if not isinstance(column, list) else NonTensorStack(*column)
        metas.append(client.put(TensorDict({"x": batch}, [n]), partition_id=f"p{number}"))
    gone = data.draw(st.integers(0, n - 1))
    if gone:
        client.clear_samples(metas[0].select_samples([0]))
        metas[0] = metas[0].select_samples(list(range(1, n)))
    before = [client.get_data(meta, mode="copy").get("x") for meta in metas]
    directory = tmp_path_factory.getbasetemp() / "any column"
    client.save_checkpoint(directory)
    for partition in client.get_partition_list():
        client.clear_partition(partition)
    client.load_checkpoint(directory)
    for meta, column in zip(metas, before, strict=True):
        assert_same_column(client.get_data(meta, mode="copy").get("x"), column)
    for partition in client.get_partition_list():
        client.clear_partition(partition)


@pytest.fixture(scope="module")
def store() -> Iterator[tq.Session]:
    with embedded() as session:
        yield session
