"""See `client_model`."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from tensordict import TensorDict

from tests.race.client_model import ClientModel
from tests.race.hand import Hand
from transferqueue import TransferQueueClient

COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None}


def run(client: TransferQueueClient, examples: int, steps: int) -> None:
    class Model(ClientModel):
        pass

    Model.client, Model.hands = client, [Hand(client)]
    chosen = settings(max_examples=examples, stateful_step_count=steps, **COMMON)  # type: ignore[arg-type]
    run_state_machine_as_test(Model, settings=chosen)  # type: ignore[no-untyped-call]


@pytest.mark.timeout(120)
def test_client_and_model_agree(client: TransferQueueClient) -> None:
    run(client, 25, 40)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_client_and_model_agree_for_long(client: TransferQueueClient) -> None:
    run(client, 1000, 60)


@pytest.mark.timeout(60)
def test_trim_where_free_space_starts_inside_a_page(client: TransferQueueClient) -> None:
    """Found by the model: large spans start at a page, so this free one never fits as a whole; trim asked for ever."""
    for rows in (3, 5):
        client.put(TensorDict({"y": torch.arange(rows)}, [rows]), partition_id="small")
    client.put(TensorDict({"x": torch.zeros(8, 40_000)}, [8]), partition_id="large")
    client.clear_partition("large")
    assert client.trim() > 0
    assert client._store.stats()["pending_bytes"] == 0
    meta = client.put(TensorDict({"x": torch.ones(8, 40_000)}, [8]), partition_id="large")
    assert client.get_data(meta)["x"].unique().tolist() == [1]
