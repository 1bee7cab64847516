"""What programs read of the answer of the named actor."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from transferqueue.compat.partition_snapshot import ProductionStatus


@pytest.fixture
def status() -> ProductionStatus:
    return ProductionStatus(np.array([3, 7, 8]), np.array([[1, 0], [0, 1], [1, 1]], dtype=np.int8))


def test_a_cell_is_found_by_global_index(status: ProductionStatus) -> None:
    assert [int(status[index, 0]) for index in (3, 7, 8)] == [1, 0, 1]
    assert [int(status[index, 0]) for index in (0, 5, 9, 10**12)] == [0, 0, 0, 0]
    assert status[7, 1] == 1
    assert status[3, 0].dtype == torch.int8


def test_several_cells_at_once(status: ProductionStatus) -> None:
    assert status[[8, 4, 7], 1].tolist() == [1, 0, 1]
    assert status[torch.tensor([3, 8]), [0, 1]].tolist() == [[1, 0], [1, 1]]
    assert status[7, :].tolist() == [0, 1]
    assert status.dense().tolist() == [[int(status[row, column]) for column in (0, 1)] for row in range(9)]
    assert tuple(status.shape) == (9, 2)


def test_a_partition_without_rows() -> None:
    empty = ProductionStatus(np.zeros(0, dtype=np.int64), np.zeros((0, 2), dtype=np.int8))
    assert int(empty[4, 1]) == 0
    assert empty[[1, 2], 0].tolist() == [0, 0]
    assert tuple(empty.dense().shape) == (0, 2)


@pytest.mark.parametrize("key", [3, (slice(None), 0), (1, 2, 3)], ids=str)
def test_other_questions_are_refused(status: ProductionStatus, key: object) -> None:
    with pytest.raises(TypeError, match="global index, column"):
        status[key]  # type: ignore[index]
