"""`tqbridge`: a method written for TensorDicts, called with metadata.

The controller passes metadata; the method sees a TensorDict of views; what it returns is stored on the same rows and
the controller gets metadata back. Without a metadata argument the method is called straight through.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from transferqueue.workers.bridge_steps import BridgedMethod, bridged_call
from transferqueue.workers.data_proto import DataProtoFuture
from transferqueue.workers.dispatch_modes import resolve_dispatch_mode
from transferqueue.workers.futures import async_received, received
from transferqueue.workers.missing_field import explain_missing_field
from transferqueue.workers.outputs import current_outputs
from transferqueue.workers.padding_mask import (
    TAKES_PADDED_BATCHES,
    PaddedBatch,
    async_call_padded,
    call_padded,
    padded_batch,
)
from transferqueue.workers.write_back import EveryRankWrites, WriteBack

_Function = TypeVar("_Function", bound=Callable[..., Any])


def tqbridge(dispatch_mode: Any = None) -> Callable[[_Function], _Function]:
    """A decorator for functions and methods, sync and async, of workers and of plain Ray actors.

    Every positional and keyword argument that is a `BatchMeta` or `KVBatchMeta` becomes a TensorDict: the fields that
    the metadata names, rows in its order, its extra_info as non-tensor entries (also with 0 rows). The tensors are
    copy-on-write views: writing in place changes nobody else's rows. Metadata inside lists or dicts is left alone. A
    parameter that is annotated with `DataProto`, or another class with ``from_tensordict`` and ``to_tensordict``, gets
    one of those made of the TensorDict: extra_info is its `meta_info`.

    Of what the function returns,

    * a TensorDict, or an object with ``to_tensordict`` such as a `DataProto`, is stored on the rows of the first
      metadata argument, all its columns, and metadata of the same kind comes back: same keys, order, partition and
      tags, with the new fields. Its `NonTensorData` entries are not stored: they become the extra_info of that
      metadata, in place of the input's. Rows that pad the batch are not stored and not in the returned metadata.
    * a dict becomes the extra_info of that metadata; nothing is stored.
    * anything else passes through.

    A `DataProtoFuture` is waited for first, without blocking the event loop of an async method, and what it gives is
    treated as if it had been the argument.

    A rank that does not collect (see `dispatch_mode`) stores nothing and returns empty metadata. Outputs that the
    method computes in what `alloc_outputs` gives it are stored without being copied.

    Args:
        dispatch_mode: decides which ranks collect: a member of `Dispatch`, a `DispatchMode`, or a mapping with
            `dispatch_fn` and `collect_fn`. None: every process does, which is right for a plain actor.

    Raises (on the call): `SchemaMismatchError` naming method, rank and both sizes when the returned TensorDict has
    another number of rows; `SessionNotFoundError` for metadata of another session; what the client raises for rows
    that were cleared and fields that are not ready.
    """
    write_back: WriteBack = EveryRankWrites()
    if dispatch_mode is not None:
        write_back = resolve_dispatch_mode(dispatch_mode).writes_back

    def decorator(function: _Function) -> _Function:
        return bridge(function, write_back)

    return decorator


def bridge(function: _Function, write_back: WriteBack, *, materialize_futures: bool = True) -> _Function:
    """`tqbridge` for a known `write_back`; with ``materialize_futures=False`` futures are handed to the function."""
    method = BridgedMethod(
        function, write_back, (PaddedBatch, DataProtoFuture) if materialize_futures else (PaddedBatch,)
    )
    if inspect.iscoroutinefunction(function):
        return cast("_Function", _asynchronous(function, method))
    return cast("_Function", _blocking(function, method))


# A worker class of a main program travels to its ranks by value, and with it these wrappers and what they name:
# functions of this module, which travel by name, and nothing else.


def _blocking(function: Callable[..., Any], method: BridgedMethod) -> Callable[..., Any]:
    @functools.wraps(function)
    def bridged(*args: Any, **kwargs: Any) -> Any:
        if _has(method.kinds, args, kwargs):
            return _run(method, args, kwargs)
        return _run_plain(function, args, kwargs)

    setattr(bridged, TAKES_PADDED_BATCHES, True)
    return bridged


def _asynchronous(function: Callable[..., Any], method: BridgedMethod) -> Callable[..., Any]:
    @functools.wraps(function)
    async def bridged(*args: Any, **kwargs: Any) -> Any:
        if _has(method.kinds, args, kwargs):
            return await _async_run(method, args, kwargs)
        return await _async_run_plain(function, args, kwargs)

    setattr(bridged, TAKES_PADDED_BATCHES, True)
    return bridged


def _call(method: BridgedMethod, *args: Any, **kwargs: Any) -> Any:
    if _has(method.kinds, args, kwargs):
        return _run(method, args, kwargs)
    return _run_plain(method.function, args, kwargs)


async def _async_call(method: BridgedMethod, *args: Any, **kwargs: Any) -> Any:
    if _has(method.kinds, args, kwargs):
        return await _async_run(method, args, kwargs)
    return await _async_run_plain(method.function, args, kwargs)


def _run(method: BridgedMethod, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _has(method.wrapped, args, kwargs):
        padded = padded_batch(args, kwargs)
        if padded is not None:
            return call_padded(functools.partial(_call, method), padded, args, kwargs)
        args, kwargs = received(args, kwargs)
        return _call(method, *args, **kwargs)
    steps = bridged_call(method, args, kwargs)
    try:
        call, _, mine, named = next(steps)
        while call is not None:
            # No name for what it returns: see `bridge_steps`.
            call, _, mine, named = steps.send(call(*mine, **named))
        return mine[0]
    except KeyError as error:
        explain_missing_field(error, method.function.__qualname__, (*args, *kwargs.values()))
        raise
    finally:
        steps.close()


async def _async_run(method: BridgedMethod, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _has(method.wrapped, args, kwargs):
        padded = padded_batch(args, kwargs)
        if padded is not None:
            return await async_call_padded(functools.partial(_async_call, method), padded, args, kwargs)
        args, kwargs = await async_received(args, kwargs)
        return await _async_call(method, *args, **kwargs)
    steps = bridged_call(method, args, kwargs)
    try:
        _, call, mine, named = next(steps)
        while call is not None:
            _, call, mine, named = steps.send(await call(*mine, **named))
        return mine[0]
    except KeyError as error:
        explain_missing_field(error, method.function.__qualname__, (*args, *kwargs.values()))
        raise
    finally:
        steps.close()


def _run_plain(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if current_outputs.get() is None:
        return function(*args, **kwargs)
    # Called by a method that was called with metadata: whose rows are not this one's.
    token = current_outputs.set(None)
    try:
        return function(*args, **kwargs)
    finally:
        current_outputs.reset(token)


async def _async_run_plain(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    token = current_outputs.set(None)
    try:
        return await function(*args, **kwargs)
    finally:
        current_outputs.reset(token)


def _has(kinds: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    # On the path of every call of every registered method: two loops, no allocation.
    for arg in args:
        if isinstance(arg, kinds):
            return True
    if kwargs:
        for value in kwargs.values():
            if isinstance(value, kinds):
                return True
    return False
