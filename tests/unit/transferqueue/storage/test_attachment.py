"""Joining a session that changes under the joiner."""

from __future__ import annotations

from typing import Any

import pytest

import transferqueue as tq
from tests.support.sessions import SIZE, left_behind
from transferqueue.errors import CorruptSegmentError, LayoutMismatchError, SessionNotFoundError, TransferQueueError
from transferqueue.storage import attachment
from transferqueue.storage.names import new_session_name

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("kind", [LayoutMismatchError, CorruptSegmentError])
@pytest.mark.parametrize("ends", [True, False])
def test_a_session_that_ends_while_it_is_joined_is_not_found(
    monkeypatch: pytest.MonkeyPatch, kind: type[TransferQueueError], ends: bool
) -> None:
    """Another of its name may be in the making where its index was: what is half there is then no defect."""
    name = new_session_name()
    session = tq.init(session=name, **{"storage.size": SIZE})

    def open_store(*_: Any, **__: Any) -> None:
        if ends:
            session.close()
        raise kind("the index is not a finished one")

    with monkeypatch.context() as patched:
        patched.setattr(attachment._native, "Store", open_store)
        with pytest.raises(SessionNotFoundError if ends else kind):
            attachment.attach(name)
    session.close()
    tq.close()
    assert left_behind(name) == []
