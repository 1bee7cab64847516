"""`register` and what it refuses."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from transferqueue.workers import Dispatch, Execute, make_nd_compute_dataproto_dispatch_fn, register
from transferqueue.workers.register import registration_of


def test_the_registration_stands_on_the_method() -> None:
    mode = make_nd_compute_dataproto_dispatch_fn("actor")

    @register(dispatch_mode=mode, blocking=False, auto_padding=True)
    def compute(self: object, batch: Any) -> Any:
        """Doc."""

    registration = registration_of(compute)
    assert registration is not None
    assert registration.dispatch_mode is mode
    assert (registration.blocking, registration.auto_padding, registration.execute_mode) == (False, True, Execute.ALL)
    assert (compute.__name__, compute.__doc__) == ("compute", "Doc.")
    assert list(inspect.signature(compute).parameters) == ["self", "batch"]
    assert registration_of(print) is None


def test_async_methods_stay_async() -> None:
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    async def compute(self: object) -> None:
        pass

    assert inspect.iscoroutinefunction(compute)


def test_modes_that_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="lose all shards"):
        register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, execute_mode=Execute.RANK_ZERO)
    with pytest.raises(ValueError, match="auto_padding"):
        register(dispatch_mode=Dispatch.ONE_TO_ALL, auto_padding=True)
    with pytest.raises(ValueError, match="dispatch_mode must be"):
        register(dispatch_mode="ONE_TO_ALL")
    with pytest.raises(ValueError, match="execute_mode must be"):
        register(execute_mode="ALL")
