"""On one machine every row is where it is wanted."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.sessions import embedded


def test_there_is_one_node() -> None:
    with embedded() as session:
        client = session.client
        assert client.place_partition("p") == client.place_partition("p", 0) == 0
        meta = client.put(TensorDict({"x": torch.ones(2)}, [2]), partition_id="p")
        assert client.prefetch(meta) == client.prefetch(meta, "x", node=0) == 0
        for call in (lambda: client.place_partition("q", 1), lambda: client.prefetch(meta, node=1)):
            with pytest.raises(ValueError, match="no node 1"):
                call()
        with pytest.raises(tq.FieldNotReadyError):
            client.prefetch(meta, "y")
        with pytest.raises(tq.TransferTimeoutError):
            client.prefetch(meta, "y", timeout=0.05)
