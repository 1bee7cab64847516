"""The registry of dispatch modes."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import pytest

from transferqueue.workers import CollectMaskWrites, EveryRankWrites, OneRankWrites
from transferqueue.workers.dispatch_functions import collect_all_to_all, dispatch_one_to_all
from transferqueue.workers.dispatch_modes import (
    Dispatch,
    DispatchMode,
    get_predefined_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
    register_dispatch_mode,
    resolve_dispatch_mode,
    update_dispatch_mode,
)


def test_every_mode_declares_who_writes_back() -> None:
    writers = {mode.name: get_predefined_dispatch_fn(mode).writes_back for mode in Dispatch if mode.value < 5}
    assert writers == {
        "RANK_ZERO": OneRankWrites(0),
        "ONE_TO_ALL": OneRankWrites(0),
        "ALL_TO_ALL": EveryRankWrites(),
        "DP_COMPUTE": EveryRankWrites(),
        "DP_COMPUTE_PROTO": EveryRankWrites(),
    }
    assert make_nd_compute_dataproto_dispatch_fn("actor").writes_back == CollectMaskWrites("actor")


def test_a_mode_is_also_a_mapping() -> None:
    mode = get_predefined_dispatch_fn(Dispatch.ONE_TO_ALL)
    assert mode["dispatch_fn"] is dispatch_one_to_all
    assert mode["collect_fn"] is collect_all_to_all
    assert {"dispatch_fn", "collect_fn"} <= set(mode)
    with pytest.raises(KeyError):
        mode["nothing"]


def test_modes_pickle() -> None:
    mode = make_nd_compute_dataproto_dispatch_fn("actor")
    again = pickle.loads(pickle.dumps(mode))
    assert again.writes_back == mode.writes_back
    assert isinstance(again.dispatch_fn, functools.partial)


def test_a_new_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    def dispatch(group: Any, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    member = register_dispatch_mode("TEST_ONLY", dispatch, collect_all_to_all, OneRankWrites(1))
    try:
        assert resolve_dispatch_mode(Dispatch.TEST_ONLY).writes_back == OneRankWrites(1)
        update_dispatch_mode(member, dispatch_one_to_all, collect_all_to_all)
        mode = resolve_dispatch_mode(member)
        assert (mode.dispatch_fn, mode.writes_back) == (dispatch_one_to_all, OneRankWrites(1))
        with pytest.raises(ValueError, match="already"):
            register_dispatch_mode("TEST_ONLY", dispatch, collect_all_to_all)
    finally:
        del Dispatch._members["TEST_ONLY"]


def test_what_register_accepts() -> None:
    pair = {"dispatch_fn": dispatch_one_to_all, "collect_fn": collect_all_to_all}
    assert resolve_dispatch_mode(pair).writes_back == EveryRankWrites()
    assert resolve_dispatch_mode({**pair, "writes_back": OneRankWrites()}).writes_back == OneRankWrites()
    mode = DispatchMode(dispatch_one_to_all, collect_all_to_all, OneRankWrites())
    assert resolve_dispatch_mode(mode) is mode
    for wrong in (None, "ONE_TO_ALL", {"dispatch_fn": dispatch_one_to_all}, {**pair, "write_back": 1}):
        with pytest.raises(ValueError, match=r"dispatch.mode"):
            resolve_dispatch_mode(wrong)
