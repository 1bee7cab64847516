"""What happens in a bridged call, once for sync and async methods.

`bridged_call` is a generator of `Step`s: each is one thing that may take time (a read, the method, a write), and the
driver in `bridge` either runs it or awaits it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from tensordict import NonTensorData, TensorDict

from transferqueue.conversions import async_rows_of_keys, rows_of_keys
from transferqueue.errors import SchemaMismatchError
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.read_report import ReadReport
from transferqueue.workers import session_client
from transferqueue.workers.batch_rows import keep_rows
from transferqueue.workers.bridge_log import CallLog
from transferqueue.workers.method_output import MethodOutput
from transferqueue.workers.ranks import rank_of
from transferqueue.workers.write_back import WriteBack

if TYPE_CHECKING:
    from transferqueue.client import TransferQueueClient


@dataclass(frozen=True)
class Step:
    """One piece of work in its two forms."""

    blocking: Callable[[], Any]
    awaitable: Callable[[], Awaitable[Any]]


Steps = Generator[Step, Any, Any]


@dataclass(frozen=True)
class _Input:
    """A metadata argument and what it stands for: `rows` are its rows by global index, `batch` their values."""

    meta: BatchMeta | KVBatchMeta
    rows: BatchMeta
    batch: TensorDict


def bridged_call(
    function: Callable[..., Any], write_back: WriteBack, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Steps:
    """Runs `function` with its metadata arguments as TensorDicts; returns what the caller gets (see `tqbridge`)."""
    owner = args[0] if args and not isinstance(args[0], (BatchMeta, KVBatchMeta)) else None
    metas = [value for value in (*args, *kwargs.values()) if isinstance(value, (BatchMeta, KVBatchMeta))]
    name = function.__qualname__
    log = CallLog(method=name, rank=rank_of(owner), metas=metas)
    try:
        filled_args, filled_kwargs, inputs = yield from _materialised(args, kwargs, name, log)
        started_s = time.perf_counter()
        output = yield Step(
            blocking=lambda: function(*filled_args, **filled_kwargs),
            awaitable=lambda: function(*filled_args, **filled_kwargs),
        )
        log.method_s = time.perf_counter() - started_s
        if not MethodOutput.is_bridged(output):
            return output
        target = inputs[0]
        caller = f"{name} on rank {log.rank}"
        result = MethodOutput(output, rows=target.meta.size, input_fields=target.rows.field_names, caller=caller)
        if not write_back.collects(owner):
            return type(target.meta)()
        started_s = time.perf_counter()
        updated = yield from _write_back(target, result)
        log.write_back_s = time.perf_counter() - started_s
        return updated
    finally:
        log.write()


def _materialised(
    args: tuple[Any, ...], kwargs: dict[str, Any], method: str, log: CallLog
) -> Generator[Step, Any, tuple[list[Any], dict[str, Any], list[_Input]]]:
    """The arguments with TensorDicts in place of metadata, and these with their metadata, in order."""
    inputs: list[_Input] = []
    filled_args, filled_kwargs = list(args), dict(kwargs)
    for position, value in enumerate(args):
        if isinstance(value, (BatchMeta, KVBatchMeta)):
            inputs.append((yield from _read(value, method, log)))
            filled_args[position] = inputs[-1].batch
    for keyword, value in kwargs.items():
        if isinstance(value, (BatchMeta, KVBatchMeta)):
            inputs.append((yield from _read(value, method, log)))
            filled_kwargs[keyword] = inputs[-1].batch
    return filled_args, filled_kwargs, inputs


def _read(meta: BatchMeta | KVBatchMeta, method: str, log: CallLog) -> Generator[Step, Any, _Input]:
    if meta.size == 0 and not meta.session:
        # An empty batch that no client made: there is nothing to look up, and no session to ask.
        rows = meta if isinstance(meta, BatchMeta) else BatchMeta()
        return _Input(meta, rows, _with_extra_info(TensorDict({}, batch_size=[0]), meta, method))
    client = session_client.client_for(meta)
    if isinstance(meta, BatchMeta):
        rows = meta
    else:
        started_s = time.perf_counter()
        rows = yield Step(
            blocking=lambda: rows_of_keys(client, meta), awaitable=lambda: async_rows_of_keys(client, meta)
        )
        log.reads.append(ReadReport(resolve_s=time.perf_counter() - started_s))
    batch, report = yield Step(
        blocking=lambda: client.get_data_with_report(rows),
        awaitable=lambda: client.async_get_data_with_report(rows),
    )
    log.reads.append(report)
    return _Input(meta, rows, _with_extra_info(batch, meta, method))


def _with_extra_info(batch: TensorDict, meta: BatchMeta | KVBatchMeta, method: str) -> TensorDict:
    info: Mapping[str, Any] = meta.extra_info
    for key, value in info.items():
        if key in batch.keys():
            raise SchemaMismatchError(
                f"{method}: extra_info entry {key!r} has the name of a field of the batch; rename one of the two",
                fields=(key,),
            )
        entry: Any = NonTensorData(value, batch_size=batch.batch_size)
        batch.set(key, entry)
    return batch


def _write_back(target: _Input, result: MethodOutput) -> Generator[Step, Any, BatchMeta | KVBatchMeta]:
    rows, columns = target.rows, result.columns
    if columns is not None and rows.size:
        rows = yield from _put(session_client.client_for(target.meta), columns, rows)
    return _same_kind(target.meta.unpad(), rows.unpad(), result.extra_info)


def _put(client: TransferQueueClient, columns: TensorDict, rows: BatchMeta) -> Generator[Step, Any, BatchMeta]:
    # A copy: put adds the fields to the metadata that it is given, which is the caller's own in a local call.
    metadata = rows.copy()
    if len(rows.partition_names) <= 1:
        stored: BatchMeta = yield Step(
            blocking=lambda: client.put(columns, metadata=metadata),
            awaitable=lambda: client.async_put(columns, metadata=metadata),
        )
        return stored
    # A put is atomic within one partition; each gets one of its own.
    partition_ids = np.array(rows.partition_ids)
    for partition in rows.partition_names:
        mine = partition_ids == partition
        yield from _put(client, keep_rows(columns, mine), rows.select_samples(mine))
    return metadata.add_fields(columns)


def _same_kind(meta: BatchMeta | KVBatchMeta, rows: BatchMeta, extra_info: dict[str, Any]) -> BatchMeta | KVBatchMeta:
    if isinstance(meta, KVBatchMeta):
        meta.fields = sorted({*(meta.fields or ()), *rows.field_names}) if rows.size else meta.fields
        meta.extra_info = extra_info
        return meta
    rows.extra_info = extra_info
    return rows
