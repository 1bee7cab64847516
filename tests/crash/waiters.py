"""Processes that wait for what another one is about to produce."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection

import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.versioned_rows import WIDTH, versions_of


def wait_for_rows(pipe: Connection, session: str, how: str) -> None:
    """Reports (number, version) of the rows it waited for."""
    client = tq.init(session=session).client
    fields = ["n", "r", "s", "x"]
    pipe.send("waiting")
    if how == "keys":
        meta = client.wait("keyed", fields=fields, keys=["k0", "k1"], timeout=50)
    elif how == "count":
        meta = client.wait("plain", fields=fields, count=2, timeout=50)
    elif how == "consumer":
        meta = client.get_meta(fields, 2, "plain", task_name="t", timeout=50)
    elif how == "async":
        meta = asyncio.run(client.async_wait("plain", fields=fields, count=2, timeout=50))
    else:
        meta = client.get_meta(fields, 2, "plain", mode="insert")
        pipe.send(meta)
        pipe.send(versions_of(client.get_data(meta, timeout=50)))
        return
    pipe.send(versions_of(client.get_data(meta)))
    tq.close()


def put_large(pipe: Connection, session: str, rows: int) -> None:
    """A put of so many rows of WIDTH numbers, which waits for room."""
    client = tq.init(session=session).client
    data = TensorDict({"x": torch.ones(rows, WIDTH, dtype=torch.int64)}, [rows])
    pipe.send("putting")
    client.put(data, partition_id="large", timeout=50)
    pipe.send("put")
    tq.close()
