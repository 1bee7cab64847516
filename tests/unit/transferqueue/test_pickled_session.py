"""Sessions and clients in pickles."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.sessions import embedded, in_child


def test_a_pickled_session_or_client_is_the_process_s_own_of_that_session() -> None:
    with embedded() as session:
        meta = session.client.put(TensorDict({"x": torch.arange(3)}, [3]), partition_id="p")
        sent = pickle.dumps((session, session.client, meta))
        assert len(sent) < 1000
        assert pickle.loads(sent)[0] is session
        assert pickle.loads(sent)[1] is session.client
        assert copy.copy(session.client) is session.client

        def read() -> None:
            tq.close()  # the child's: it joins by what was sent
            theirs, client, rows = pickle.loads(sent)
            assert not theirs.creator
            assert client is theirs.client
            assert client.get_data(rows)["x"].tolist() == [0, 1, 2]

        assert in_child(read) == 0
    with pytest.raises(tq.SessionNotFoundError):
        pickle.loads(sent)
