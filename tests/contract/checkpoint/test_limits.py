"""Limits are of the session: a checkpoint is loaded whatever they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.sessions import embedded

pytestmark = pytest.mark.timeout(120)


def batch(rows: int) -> TensorDict:
    return TensorDict({"x": torch.zeros(rows, 16)}, [rows])


def test_a_checkpoint_is_loaded_at_the_limit_and_puts_meet_it(tmp_path: Path) -> None:
    with embedded() as session:
        session.client.put(batch(6), partition_id="p", tags=[{"weight_version": 3}] * 6)
        session.client.get_meta("x", 1, "p", task_name="train")
        session.client.save_checkpoint(str(tmp_path / "saved"))
    with embedded(**{"limits.max_unconsumed_rows": 4, "limits.max_version_lag": 0}) as session:
        session.client.load_checkpoint(str(tmp_path / "saved"))
        held = session.client.get_limits("p")
        assert (held.unconsumed_rows, held.newest_version, held.oldest_version) == (5, 3, 3)
        with pytest.raises(tq.LimitTimeoutError):
            session.client.put(batch(1), partition_id="p", timeout=0)
        session.client._store.check()
