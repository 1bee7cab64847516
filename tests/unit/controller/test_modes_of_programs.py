"""Modes and values that a program adds, what stands on a method, and what is said of what is not there."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from transferqueue.controller import DispatchError, DispatchRefusedError, LocalWorkerGroup
from transferqueue.workers import (
    MAGIC_ATTR,
    Broadcast,
    Dispatch,
    DispatchMode,
    DistGlobalInfo,
    DistRankInfo,
    Execute,
    PerRank,
    Worker,
    get_predefined_dispatch_fn,
    get_predefined_execute_fn,
    make_nd_compute_dataproto_dispatch_fn,
    register,
    register_dispatch_mode,
    update_dispatch_mode,
)
from transferqueue.workers.register import registration_of


def every_second(group: Any, *args: Any, **kwargs: Any) -> Any:
    """As programs write them: a list for each argument, with one element per rank."""
    return (
        tuple([arg if rank % 2 else None for rank in range(group.world_size)] for arg in args),
        {name: [value] * group.world_size for name, value in kwargs.items()},
    )


def collect_odd(group: Any, output: list[Any]) -> list[Any]:
    return output[1::2]


@pytest.fixture
def added() -> Iterator[Any]:
    member = register_dispatch_mode("EVERY_SECOND", every_second, collect_odd)
    execute = Execute.register("last_rank")
    yield member
    Dispatch.remove("EVERY_SECOND")
    Execute.remove(execute.name)


class LastRankGroup(LocalWorkerGroup):
    def execute_last_rank(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        return self.execute_rank_async(self.world_size - 1, method_name, *args, **kwargs)


def worker_class() -> type:
    class Mine(Worker):
        attribute = 3

        @register(dispatch_mode=Dispatch.EVERY_SECOND)  # type: ignore[attr-defined]
        def odd(self, value: Any) -> Any:
            return self.rank, value

        @register(dispatch_mode={"dispatch_fn": every_second, "collect_fn": collect_odd})
        def by_dict(self, value: Any) -> Any:
            return self.rank, value

        @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.LAST_RANK)  # type: ignore[attr-defined]
        def last(self, value: Any) -> Any:
            return self.rank, value

        @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.LAST_RANK, blocking=False)  # type: ignore[attr-defined]
        def last_later(self, value: Any) -> Any:
            return self.rank, value

        @register(dispatch_mode=Dispatch.RANK_ZERO)
        def only_zero(self, value: Any) -> Any:
            self.ran = True
            return self.rank, value

        @register(dispatch_mode=Dispatch.DIRECT_ROLLOUT_METHOD)
        def rollout(self) -> None:
            """Called by an engine."""

        @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
        def split(self, batch: Any, *more: Any, factor: Any = None) -> Any:
            return batch

        def plain(self) -> None:
            """Not registered."""

    return Mine


def test_modes_and_values_of_a_program(added: Any) -> None:
    with LastRankGroup(worker_class(), 4) as group:
        assert group.odd(5) == [(1, 5), (3, 5)]
        assert group.by_dict(value=5) == [(1, 5), (3, 5)]
        assert group.last(PerRank("abcd")) == (3, "d")
        later = group.last_later(Broadcast(7))
        assert (later.get(), later.done()) == ((3, 7), True)
    assert get_predefined_execute_fn(Execute["LAST_RANK"]) == {"execute_fn_name": "execute_last_rank"}
    with (
        LocalWorkerGroup(worker_class(), 2) as group,
        pytest.raises(ValueError, match="'execute_last_rank' of the group, which LocalWorkerGroup does not have"),
    ):
        group.last(1)


def test_an_update_is_for_groups_that_are_made_afterwards(added: Any) -> None:
    user_class = worker_class()
    with LastRankGroup(user_class, 2) as before:
        update_dispatch_mode(added, every_second, lambda group, output: "updated")
        with LastRankGroup(user_class, 2) as after:
            assert (before.odd(1), after.odd(1)) == ([(1, 1)], "updated")


def test_a_member_whose_functions_are_elsewhere_says_so(added: Any) -> None:
    user_class = worker_class()
    data = pickle.dumps(added)
    Dispatch.remove("EVERY_SECOND")
    try:
        arrived = pickle.loads(data)
        assert arrived is Dispatch["EVERY_SECOND"]
        with pytest.raises(ValueError, match=r"functions of Dispatch\.EVERY_SECOND are not in this process"):
            get_predefined_dispatch_fn(arrived)
    finally:
        again = register_dispatch_mode("EVERY_SECOND", every_second, collect_odd)
    assert again is arrived, "a module that registers it later gets the one that came first"
    assert user_class is not None


def test_rank_zero_alone_runs() -> None:
    class One(Worker):
        ran = False

        @register(dispatch_mode=Dispatch.RANK_ZERO)
        def only(self, value: Any) -> Any:
            self.ran = True
            return self.rank, value

    with LocalWorkerGroup(One, 3) as group:
        assert group.only(PerRank([7, 8, 9])) == (0, 7)
        assert group.only([1, 2, 3]) == (0, [1, 2, 3])
        assert [worker.ran for worker in group.workers] == [True, False, False]


def test_what_stands_on_a_method(added: Any) -> None:
    attributes = getattr(worker_class().last_later, "attrs_3141562937")  # noqa: B009  the documented name
    assert MAGIC_ATTR == "attrs_3141562937"
    assert isinstance(attributes, dict)
    assert attributes == {
        "dispatch_mode": Dispatch.ONE_TO_ALL,
        "execute_mode": Execute["LAST_RANK"],
        "blocking": False,
    }
    assert pickle.loads(pickle.dumps(attributes)) == attributes


def test_the_dict_on_a_method_is_what_counts() -> None:
    class Copied(Worker):
        @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO, auto_padding=True)
        def source(self, batch: Any) -> Any:
            return batch

        def method(self, batch: Any) -> Any:
            return batch

        def other(self, value: Any) -> Any:
            return self.rank, value

    setattr(Copied.method, MAGIC_ATTR, getattr(Copied.source, MAGIC_ATTR))
    setattr(Copied.other, MAGIC_ATTR, {"dispatch_mode": Dispatch.ONE_TO_ALL, "execute_mode": Execute.RANK_ZERO})
    registration = registration_of(Copied.method)
    assert registration is not None
    assert registration.auto_padding is True
    getattr(Copied.source, MAGIC_ATTR)["blocking"] = False
    changed = registration_of(Copied.source)
    assert changed is not None
    assert changed.blocking is False
    with LocalWorkerGroup(Copied, 2) as group:
        assert group.other(4) == (0, 4)


def test_names_that_are_not_there(added: Any) -> None:
    with LastRankGroup(worker_class(), 1) as group:
        with pytest.raises(AttributeError, match=r"Mine\.plain is there, but without @register.*execute_all_sync"):
            _ = group.plain
        with pytest.raises(AttributeError, match=r"'attribute'.*is no method but of type int"):
            _ = group.attribute
        with pytest.raises(AttributeError, match=r"no member 'splitt'.*Mine has none either; did you mean 'split'"):
            _ = group.splitt


def test_refusals_name_method_and_parameter(added: Any) -> None:
    batch = TensorDict({"x": torch.arange(4)}, [4])
    with LastRankGroup(worker_class(), 2) as group:
        for call, name in (
            (lambda: group.split(3), "batch"),
            (lambda: group.split(batch, batch, "text"), r"more\[1\]"),
            (lambda: group.split(batch, factor=1.0), "factor"),
        ):
            with pytest.raises(DispatchError, match=rf"LastRankGroup\.split: argument '{name}' is of type") as info:
                call()
            assert info.value.method == "LastRankGroup.split"
        with pytest.raises(DispatchRefusedError, match=r"rollout: a method with DIRECT_ROLLOUT_METHOD is called by"):
            group.rollout()
        with pytest.raises(TypeError, match=r"^Mine\.split\(\) missing a required argument: 'batch'$"):
            group.split()
        with pytest.raises(TypeError, match=r"^Mine\.split\(\) got an unexpected keyword argument 'time'$"):
            group.split(batch, time=1)
        assert torch.equal(group.split(batch, factor=Broadcast(1.0))["x"], batch["x"])


class Parallel(Worker):
    """DP 2 x TP 2 x PP 2, TP fastest and PP slowest."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        place = self._place()
        self._register_dispatch_collect_info("actor", place.dp_rank, place.tp_rank == 0 and place.pp_rank == 1)

    def _place(self) -> DistRankInfo:
        return DistRankInfo(tp_rank=self.rank % 2, dp_rank=self.rank // 2 % 2, pp_rank=self.rank // 4, cp_rank=0)

    def get_megatron_rank_info(self) -> DistRankInfo:
        self.asked += 1
        return self._place()

    def get_megatron_global_info(self) -> DistGlobalInfo:
        return DistGlobalInfo(tp_size=2, dp_size=2, pp_size=2, cp_size=1)

    def query_dispatch_info(self, mesh_name: str) -> int:
        self.asked += 1
        return super().query_dispatch_info(mesh_name)

    def _tagged(self, batch: TensorDict) -> TensorDict:
        return TensorDict({"x": batch["x"], "by": torch.full(batch.batch_size, self.rank)}, batch.batch_size)

    @register(dispatch_mode=Dispatch.MEGATRON_COMPUTE_PROTO)
    def megatron(self, batch: TensorDict) -> TensorDict:
        return self._tagged(batch)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn("actor"))
    def mesh(self, batch: TensorDict) -> TensorDict:
        return self._tagged(batch)

    @register(dispatch_mode=Dispatch.MEGATRON_PP_AS_DP_PROTO)
    def stages(self, batch: TensorDict) -> TensorDict:
        return self._tagged(batch)

    @register(dispatch_mode=Dispatch.MEGATRON_COMPUTE)
    def listed(self, value: Any) -> Any:
        return self.rank, value


@pytest.mark.parametrize("rows", [1, 4, 7])
@pytest.mark.parametrize("auto_padding", [False, True])
def test_mesh_and_megatron_modes_agree(rows: int, auto_padding: bool) -> None:
    batch = TensorDict({"x": torch.arange(rows)}, [rows])
    with LocalWorkerGroup(Parallel, 8, auto_padding=auto_padding) as group:
        megatron, mesh = group.megatron(batch), group.mesh(batch)
        assert megatron["x"].tolist() == mesh["x"].tolist() == list(range(rows))
        assert megatron["by"].tolist() == mesh["by"].tolist()
        assert set(mesh["by"].tolist()) <= {4, 6}
        stages = group.stages(batch)
        assert stages["x"].tolist() == list(range(rows))
        assert set(stages["by"].tolist()) <= {0, 2, 4, 6}
        assert group.listed(["a", "b"]) == [(4, "a"), (6, "b")]


def test_places_are_asked_for_once() -> None:
    batch = TensorDict({"x": torch.arange(4)}, [4])
    with LocalWorkerGroup(Parallel, 8) as group:
        for _ in range(3):
            group.megatron(batch)
            group.mesh(batch)
        assert [worker.asked for worker in group.workers] == [2] * 8
        assert group.get_megatron_rank_info(rank=5) == DistRankInfo(1, 0, 1, 0)
        assert group.get_megatron_global_info().pp_size == 2
        with pytest.raises(IndexError, match="rank 8 of a group of 8"):
            group.get_megatron_rank_info(8)


def test_a_class_that_does_not_tell_its_place_is_named() -> None:
    class Elsewhere(Worker):
        @register(dispatch_mode=Dispatch.MEGATRON_COMPUTE)
        def listed(self, value: Any) -> Any:
            return value

    with (
        LocalWorkerGroup(Elsewhere, 2) as group,
        pytest.raises(
            DispatchError, match=r"listed: a Megatron .* Elsewhere has no get_megatron_rank_info and no get_m"
        ),
    ):
        group.listed([1, 2])


def test_a_mode_is_a_dict_that_does_not_change() -> None:
    mode = make_nd_compute_dataproto_dispatch_fn("actor")
    assert isinstance(mode, dict)
    assert set(mode) >= {"dispatch_fn", "collect_fn", "writes_back"}
    with pytest.raises(TypeError, match="does not change"):
        mode["dispatch_fn"] = every_second
    again = pickle.loads(pickle.dumps(mode))
    assert isinstance(again, DispatchMode)
    assert dict(again).keys() == dict(mode).keys()
