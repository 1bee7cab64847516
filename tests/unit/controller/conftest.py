from __future__ import annotations

import pytest

from tests.unit.workers.fake_client import FakeClient
from transferqueue.workers import session_client


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """The data plane that bridged calls of the test talk to."""
    fake = FakeClient()
    monkeypatch.setattr(session_client, "client_for", lambda metadata: fake)
    return fake
