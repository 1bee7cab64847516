"""The client's calls as functions of the module, on this process's client."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from transferqueue.client import TransferQueueClient
from transferqueue.session import get_client

P = ParamSpec("P")
R = TypeVar("R")


def function_of(
    method: Callable[Concatenate[Any, P], R],
    module: str,
    client: Callable[[], Any],
    client_in_loop: Callable[[], Awaitable[Any]],
) -> Callable[P, R]:
    """A method as a function of `module`, on what `client` gives (`client_in_loop` on an event loop); the method is
    looked up at each call, so a patched client counts."""
    name = method.__name__

    @functools.wraps(method)
    def function(*args: P.args, **kwargs: P.kwargs) -> Any:
        return getattr(client(), name)(*args, **kwargs)

    @functools.wraps(method)
    async def coroutine_function(*args: P.args, **kwargs: P.kwargs) -> Any:
        return await getattr(await client_in_loop(), name)(*args, **kwargs)

    call: Any = coroutine_function if inspect.iscoroutinefunction(method) else function
    signature = inspect.signature(method)
    call.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    call.__qualname__ = name
    call.__module__ = module
    call.__dict__.pop("__steps__", None)
    return cast("Callable[P, R]", call)


async def _client_in_loop() -> TransferQueueClient:
    return get_client()


def on_client(method: Callable[Concatenate[TransferQueueClient, P], R]) -> Callable[P, R]:
    """A method of the client as a function of the package, on this process's client."""
    return function_of(method, "transferqueue", get_client, _client_in_loop)


place_partition = on_client(TransferQueueClient.place_partition)
prefetch = on_client(TransferQueueClient.prefetch)
put = on_client(TransferQueueClient.put)
get_meta = on_client(TransferQueueClient.get_meta)
get_as = on_client(TransferQueueClient.get_as)
get_data = on_client(TransferQueueClient.get_data)
wait = on_client(TransferQueueClient.wait)
claim = on_client(TransferQueueClient.claim)
ack = on_client(TransferQueueClient.ack)
nack = on_client(TransferQueueClient.nack)
extend = on_client(TransferQueueClient.extend)
alloc = on_client(TransferQueueClient.alloc)
coalesce = on_client(TransferQueueClient.coalesce)
clear_samples = on_client(TransferQueueClient.clear_samples)
clear_partition = on_client(TransferQueueClient.clear_partition)
set_custom_meta = on_client(TransferQueueClient.set_custom_meta)
get_partition_list = on_client(TransferQueueClient.get_partition_list)
get_production_status = on_client(TransferQueueClient.get_production_status)
get_consumption_status = on_client(TransferQueueClient.get_consumption_status)
check_production_status = on_client(TransferQueueClient.check_production_status)
check_consumption_status = on_client(TransferQueueClient.check_consumption_status)
reset_consumption = on_client(TransferQueueClient.reset_consumption)
row_nodes = on_client(TransferQueueClient.row_nodes)
kv_retrieve_meta = on_client(TransferQueueClient.kv_retrieve_meta)
kv_retrieve_keys = on_client(TransferQueueClient.kv_retrieve_keys)
stats = on_client(TransferQueueClient.stats)
set_limits = on_client(TransferQueueClient.set_limits)
get_limits = on_client(TransferQueueClient.get_limits)
set_weight_version = on_client(TransferQueueClient.set_weight_version)
trim = on_client(TransferQueueClient.trim)
save_checkpoint = on_client(TransferQueueClient.save_checkpoint)
load_checkpoint = on_client(TransferQueueClient.load_checkpoint)

async_place_partition = on_client(TransferQueueClient.async_place_partition)
async_prefetch = on_client(TransferQueueClient.async_prefetch)
async_put = on_client(TransferQueueClient.async_put)
async_get_meta = on_client(TransferQueueClient.async_get_meta)
async_get_as = on_client(TransferQueueClient.async_get_as)
async_get_data = on_client(TransferQueueClient.async_get_data)
async_wait = on_client(TransferQueueClient.async_wait)
async_claim = on_client(TransferQueueClient.async_claim)
async_ack = on_client(TransferQueueClient.async_ack)
async_nack = on_client(TransferQueueClient.async_nack)
async_extend = on_client(TransferQueueClient.async_extend)
async_alloc = on_client(TransferQueueClient.async_alloc)
async_coalesce = on_client(TransferQueueClient.async_coalesce)
async_clear_samples = on_client(TransferQueueClient.async_clear_samples)
async_clear_partition = on_client(TransferQueueClient.async_clear_partition)
async_set_custom_meta = on_client(TransferQueueClient.async_set_custom_meta)
async_get_partition_list = on_client(TransferQueueClient.async_get_partition_list)
async_get_production_status = on_client(TransferQueueClient.async_get_production_status)
async_get_consumption_status = on_client(TransferQueueClient.async_get_consumption_status)
async_check_production_status = on_client(TransferQueueClient.async_check_production_status)
async_check_consumption_status = on_client(TransferQueueClient.async_check_consumption_status)
async_reset_consumption = on_client(TransferQueueClient.async_reset_consumption)
async_row_nodes = on_client(TransferQueueClient.async_row_nodes)
async_kv_retrieve_meta = on_client(TransferQueueClient.async_kv_retrieve_meta)
async_kv_retrieve_keys = on_client(TransferQueueClient.async_kv_retrieve_keys)
async_stats = on_client(TransferQueueClient.async_stats)
async_set_limits = on_client(TransferQueueClient.async_set_limits)
async_get_limits = on_client(TransferQueueClient.async_get_limits)
async_set_weight_version = on_client(TransferQueueClient.async_set_weight_version)
async_trim = on_client(TransferQueueClient.async_trim)
async_save_checkpoint = on_client(TransferQueueClient.async_save_checkpoint)
async_load_checkpoint = on_client(TransferQueueClient.async_load_checkpoint)
