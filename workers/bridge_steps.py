"""What happens in a bridged call, once for sync and async methods.

`bridged_call` is a generator of `Step`s: each is one thing that may take time (a read, the method, a write), and the
driver in `bridge` either runs it or awaits it. A step is a plain tuple, and nobody but the callee holds what a method
returned while it is stored: what was computed in place is published without a copy only then (see `outputs`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from tensordict import NonTensorData, TensorDict

from transferqueue.batch_types import is_batch_type
from transferqueue.codec import new_batch
from transferqueue.conversions import async_rows_of_keys, rows_of_keys
from transferqueue.errors import SchemaMismatchError
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.read_report import ReadReport
from transferqueue.workers import session_client
from transferqueue.workers.batch_rows import keep_rows
from transferqueue.workers.bridge_log import CallLog, start_log
from transferqueue.workers.method_output import MethodOutput, is_bridged
from transferqueue.workers.outputs import CallOutputs, current_outputs
from transferqueue.workers.parameter_types import ParameterTypes, parameter_types
from transferqueue.workers.ranks import rank_of
from transferqueue.workers.write_back import WriteBack

if TYPE_CHECKING:
    from transferqueue.client import TransferQueueClient

Step = tuple[Callable[..., Any], Callable[..., Awaitable[Any]], tuple[Any, ...], dict[str, Any]]
"""One piece of work: what to call, what to await instead, and the arguments of both."""

_Last = tuple[None, None, tuple[Any], dict[str, Any]]
"""The last step of all: nothing to call; its one argument is the result."""

Steps = Generator[Step | _Last, Any, None]

METADATA = (BatchMeta, KVBatchMeta)


@dataclass(slots=True)
class Input:
    """A metadata argument and what it stands for: `rows` are its rows by global index, `batch` their values.

    `client` is None where there is nothing to look up: an empty batch that no client made.
    """

    meta: BatchMeta | KVBatchMeta
    client: TransferQueueClient | None
    rows: BatchMeta
    batch: TensorDict


class BridgedMethod:
    """What the bridge knows of a function before it is called.

    Attributes:
        write_back: who writes its outputs back.
        wrapped: types of arguments that stand for something else: they are replaced before anything is looked at.
        kinds: these and metadata; a call without any is no business of the bridge.
    """

    __slots__ = ("_types", "function", "kinds", "wrapped", "write_back")

    def __init__(self, function: Callable[..., Any], write_back: WriteBack, wrapped: tuple[type, ...]) -> None:
        self.function = function
        self.write_back = write_back
        self.wrapped = wrapped
        self.kinds: tuple[type, ...] = (*METADATA, *wrapped)
        self._types: ParameterTypes | Literal["unread"] | None = "unread"

    @property
    def parameter_types(self) -> ParameterTypes | None:
        """Read on first use, when all names of the module are there."""
        if self._types == "unread":
            self._types = parameter_types(self.function)
        return self._types


def bridged_call(bridged: BridgedMethod, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Steps:
    """Runs the function with its metadata arguments as TensorDicts; ends with what the caller gets (see `tqbridge`).

    A method may raise anything, StopIteration too, so the result is a last step and not what the generator returns.
    """
    function, write_back, types = bridged.function, bridged.write_back, bridged.parameter_types
    method = function.__qualname__
    owner = args[0] if args and not isinstance(args[0], METADATA) else None
    log = start_log(method, owner, args, kwargs)
    outputs: CallOutputs | None = None
    try:
        target: Input | None = None
        filled_args, filled_kwargs = list(args), dict(kwargs)
        for position, value in enumerate(args):
            if isinstance(value, METADATA):
                entry = yield from _read(value, method, log)
                filled_args[position] = entry.batch if types is None else types.converted(position, entry.batch)
                target = target or entry
        for name, value in kwargs.items():
            if isinstance(value, METADATA):
                entry = yield from _read(value, method, log)
                filled_kwargs[name] = entry.batch if types is None else types.converted(name, entry.batch)
                target = target or entry
        assert target is not None  # the driver looked
        outputs = CallOutputs(target.rows, target.client, write_back, owner)
        started_s = time.perf_counter()
        token = current_outputs.set(outputs)
        try:
            output = yield function, function, tuple(filled_args), filled_kwargs
        finally:
            current_outputs.reset(token)
            log.method_s = time.perf_counter() - started_s
        if not is_bridged(output) and is_batch_type(type(output)):
            output = output.to_tensordict()
        if not is_bridged(output):
            log.done = True
            yield _last(output)
            return
        result = MethodOutput(output, target.meta.size, target.rows.schemas, lambda: f"{method} on {_rank_text(owner)}")
        del output
        if not write_back.collects(owner):
            log.done = True
            yield _last(type(target.meta)())
            return
        started_s = time.perf_counter()
        try:
            rows = yield from _stored(target, result, outputs)
        finally:
            log.write_back_s = time.perf_counter() - started_s
        last = _last(_same_kind(target.meta, rows, result.extra_info))
        log.done = True
        yield last
    finally:
        if outputs is not None:
            outputs.close()
        log.finish()


def _last(result: Any) -> _Last:
    return None, None, (result,), {}


def _read(meta: BatchMeta | KVBatchMeta, method: str, log: CallLog) -> Generator[Step, Any, Input]:
    if meta.size == 0 and not meta.session:
        # An empty batch that no client made: there is nothing to look up, and no session to ask.
        rows = meta if isinstance(meta, BatchMeta) else BatchMeta()
        return Input(meta, None, rows, _with_extra_info(new_batch({}, 0), meta, method))
    client = session_client.client_for(meta)
    log.client = log.client or client
    started_s = time.perf_counter()
    try:
        if isinstance(meta, BatchMeta):
            rows = meta
        else:
            rows = yield rows_of_keys, async_rows_of_keys, (client, meta), {}
            log.reads.append(ReadReport(resolve_s=time.perf_counter() - started_s))
        batch, report = yield client.get_data_with_report, client.async_get_data_with_report, (rows,), {}
        log.reads.append(report)
    finally:
        log.read_s += time.perf_counter() - started_s
    return Input(meta, client, rows, _with_extra_info(batch, meta, method))


def _with_extra_info(batch: TensorDict, meta: BatchMeta | KVBatchMeta, method: str) -> TensorDict:
    for key, value in meta.extra_info.items():
        if key in batch.keys():
            raise SchemaMismatchError(
                f"{method}: extra_info entry {key!r} has the name of a field of the batch; rename one of the two",
                fields=(key,),
            )
        entry: Any = NonTensorData(value, batch_size=batch.batch_size)
        batch.set(key, entry)
    return batch


def _stored(target: Input, result: MethodOutput, outputs: CallOutputs) -> Generator[Step, Any, BatchMeta]:
    """The rows with the new fields, in a metadata object of its own; pads left out."""
    columns = result.take_columns()
    if columns is None or not target.rows.size or target.client is None:
        return target.rows.unpad()
    beside = outputs.beside(columns)
    if beside is not None:
        del columns
        committed: BatchMeta = yield outputs.commit, outputs.async_commit, (beside,), {}
        return committed
    # A copy: put adds the fields to the metadata that it is given, which is the caller's own in a local call.
    stored = yield from _put(target.client, columns, target.rows.copy())
    return stored if stored.num_padding == 0 else stored.unpad()


def _put(client: TransferQueueClient, columns: TensorDict, metadata: BatchMeta) -> Generator[Step, Any, BatchMeta]:
    if len(metadata.partition_names) <= 1:
        stored: BatchMeta = yield client.put, client.async_put, (columns,), {"metadata": metadata}
        return stored
    # A put is atomic within one partition; each gets one of its own.
    partition_ids = np.array(metadata.partition_ids)
    for partition in metadata.partition_names:
        mine = partition_ids == partition
        yield from _put(client, keep_rows(columns, mine), metadata.select_samples(mine))
    return metadata.add_fields(columns)


def _same_kind(meta: BatchMeta | KVBatchMeta, rows: BatchMeta, extra_info: dict[str, Any]) -> BatchMeta | KVBatchMeta:
    if isinstance(meta, KVBatchMeta):
        meta = meta.unpad()
        meta.fields = sorted({*(meta.fields or ()), *rows.field_names}) if rows.size else meta.fields
        meta.extra_info = extra_info
        return meta
    rows.extra_info = extra_info
    return rows


def _rank_text(owner: object) -> str:
    return f"rank {rank_of(owner)}"
