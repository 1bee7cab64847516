"""See `process_model`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.race.hand import ElsewhereHand
from tests.race.process_model import HANDS, ProcessModel
from tests.support.nursery import Nursery
from tests.support.quiet import without_service
from tests.support.sessions import embedded
from transferqueue import TransferQueueClient


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TransferQueueClient]:
    """Of a session that can spill."""
    options = {"storage.size": "32MiB", "spill.dir": str(tmp_path), "spill.size": "32MiB", "spill.keep_free": 0}
    with embedded(**options) as session, without_service(session):
        yield session.client


def run(client: TransferQueueClient, nursery: Nursery, examples: int, steps: int, number: int) -> None:
    """`number` decides what happens: a failure of a seed comes again with it."""
    workers = [ElsewhereHand(nursery, client.session) for _ in range(HANDS)]

    class Model(ProcessModel):
        pass

    Model.client, Model.nursery, Model.hands = client, nursery, workers
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=[Phase.generate, Phase.shrink],
    )
    try:
        run_state_machine_as_test(seed(number)(Model), settings=chosen)  # type: ignore[no-untyped-call]
    finally:
        for worker in Model.hands:
            worker.end()
    for worker in Model.hands:
        assert worker.child.wait() == 0


@pytest.mark.timeout(120)
def test_processes_and_model_agree(client: TransferQueueClient, nursery: Nursery) -> None:
    run(client, nursery, 4, 30, 1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(100, 110))
def test_processes_and_model_agree_for_long(client: TransferQueueClient, nursery: Nursery, number: int) -> None:
    run(client, nursery, 150, 60, number)
