"""What every kind of worker group does: the same tests for ranks on Ray and for ranks in this process."""

from __future__ import annotations

import asyncio
import inspect
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tests.contract.worker_group.workers import Calm, Hiding, Mortal, Plain, Refusing
from transferqueue.controller import (
    Broadcast,
    ClassWithInitArgs,
    LocalWorkerGroup,
    PerRank,
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    WorkerDiedError,
    WorkerError,
    WorkerGroup,
    WorkerGroupDeadError,
)
from transferqueue.errors import TransferTimeoutError

pytestmark = pytest.mark.timeout(120)
Make = Callable[..., WorkerGroup]


@pytest.fixture(scope="module", params=["local", "ray"])
def make(request: pytest.FixtureRequest) -> Make:
    if request.param == "local":
        return lambda cls, ranks, *args, **kwargs: LocalWorkerGroup(ClassWithInitArgs(cls, *args, **kwargs), ranks)
    request.getfixturevalue("ray_cluster")
    return lambda cls, ranks, *args, **kwargs: RayWorkerGroup(
        RayResourcePool([ranks], use_gpu=False, max_colocate_count=1), RayClassWithInitArgs(cls, *args, **kwargs)
    )


@pytest.fixture(scope="module")
def group(make: Make) -> Iterator[WorkerGroup]:
    with make(Calm, 4, 100, own=PerRank("abcd")) as group:
        yield group


def test_ranks_know_who_they_are(group: WorkerGroup) -> None:
    places = group.place()
    assert [place["rank"] for place in places] == [0, 1, 2, 3]
    assert {place["world_size"] for place in places} == {4}
    assert {place["base"] for place in places} == {100}
    assert [place["own"] for place in places] == ["a", "b", "c", "d"]
    assert group.world_size == len(group.workers) == 4
    assert not group.is_dead


def test_ways_to_call(group: WorkerGroup) -> None:
    assert group.alone(5) == 105
    assert group.spread([1, 2, 3, 4]) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert group.spread(Broadcast([1, 2, 3, 4]))[2] == (2, [1, 2, 3, 4])
    assert group.execute_all_sync("unregistered", [5, 6, 7, 8])[3] == (3, 8)
    assert group.execute_all_sync("unregistered", value=PerRank("abcd"))[1] == (1, "b")
    assert group.execute_all_sync("unregistered", "v")[1] == (1, "v")
    assert group.execute_all_async("unregistered", 1).get() == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert group.execute_all("unregistered", 1).get()[2] == (2, 1)
    assert group.execute_rank_zero_sync("unregistered", 9) == (0, 9)
    assert group.execute_rank_sync(2, "unregistered", 9) == (2, 9)
    with pytest.raises(IndexError, match="rank 4 of a group of 4 ranks"):
        group.execute_rank_sync(4, "unregistered", 9)


def test_batches_are_split_and_joined(group: WorkerGroup) -> None:
    for rows in (8, 5, 1):
        batch = TensorDict({"x": torch.arange(rows)}, [rows])
        assert group.double(batch)["y"].tolist() == [2 * i for i in range(rows)]
    batch = TensorDict({"x": torch.arange(4)}, [4])
    assert group.on_mesh(batch)["y"].tolist() == [0, 100, 202, 302], "ranks 0 and 2 collect two rows each"


def test_futures(group: WorkerGroup) -> None:
    future = group.slow(0.3)
    assert not future.done()
    with pytest.raises(TransferTimeoutError, match=r"slow: 4 of 4 ranks have not answered after 0.02 s") as caught:
        future.get(timeout_s=0.02)
    assert caught.value.missing == [0, 1, 2, 3]
    assert future.get() == future.get() == [0, 1, 2, 3]
    assert future.done()

    async def wait() -> Any:
        return await group.slow(0.0)

    assert asyncio.run(wait()) == [0, 1, 2, 3]
    assert group.spread(group.slow(0.0))[1] == (1, 1), "a future among the arguments is waited for"


def test_a_rank_runs_its_calls_in_the_order_they_were_sent(group: WorkerGroup) -> None:
    group.orders()
    futures = [group.slow(0.02 if number == 0 else 0.0, number) for number in range(4)]
    assert group.orders() == [[0, 1, 2, 3]] * 4
    assert [future.get() for future in futures] == [[0, 1, 2, 3]] * 4


def test_an_error_is_what_the_method_raised_and_names_the_rank(group: WorkerGroup) -> None:
    with pytest.raises(KeyError) as caught:
        group.fail(2)
    error = caught.value
    assert isinstance(error, WorkerError)
    assert (error.rank, error.method) == (2, "fail")
    assert "fail failed on rank 2" in str(error)
    assert "KeyError: missing on 2" in str(error)
    assert "workers.py" in error.remote_traceback
    assert "bridge.py" not in str(error), "the traceback is that of the method"
    assert not group.is_dead
    assert group.alone(0) == 100, "the group goes on"
    with pytest.raises(AttributeError, match="no_such"):
        group.execute_all_sync("no_such")


def test_a_method_looks_like_the_workers(group: WorkerGroup) -> None:
    assert group.alone.__name__ == "alone"
    assert str(inspect.signature(group.alone)) == "(value: 'int', *, factor: 'int' = 1) -> 'int'"
    assert inspect.getdoc(group.place) == "Who this rank is.\n\nSays it as a dict."
    assert {"alone", "place", "slow"} <= set(dir(group))
    with pytest.raises(TypeError, match="factr"):
        group.alone(1, factr=2)
    with pytest.raises(TypeError, match="too many positional"):
        group.slow(0.0, 1, 2)


def test_a_method_stands_in_tracebacks_under_its_own_name(group: WorkerGroup) -> None:
    try:
        group.fail(0)
    except KeyError as error:
        names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert names[1] == "fail"
    assert "__call__" not in names


def test_names_that_the_group_uses_are_refused(make: Make) -> None:
    with pytest.raises(ValueError, match=r"Hiding\.execute_all: groups have a member 'execute_all' of their own"):
        make(Hiding, 1)


def test_unknown_names(group: WorkerGroup) -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        group.nothing_like_it()
    with pytest.raises(AttributeError, match="register"):
        group.unregistered(1)


def test_slices(group: WorkerGroup) -> None:
    back = group[2:4]
    assert isinstance(back, type(group))
    assert back.world_size == 2
    assert [place["rank"] for place in back.place()] == [2, 3]
    assert back.alone(0) == 102, "rank 0 of the slice is rank 2 of the group"
    assert back.spread([7, 8]) == [(2, 7), (3, 8)]
    assert back.double(TensorDict({"x": torch.arange(3)}, [3]))["y"].tolist() == [0, 2, 4]
    assert group[3].place()[0]["rank"] == group[-1].place()[0]["rank"] == 3
    assert [place["rank"] for place in group[::2].place()] == [0, 2]
    assert [place["rank"] for place in group[1:][1:].place()] == [2, 3]
    assert [one.world_size for one in group] == [1, 1, 1, 1]
    with pytest.raises(IndexError, match="rank 4 of a group of 4 ranks"):
        group[4]
    with pytest.raises(ValueError, match="no ranks"):
        group[2:2]
    with pytest.raises(KeyError) as caught:
        back.fail(3)
    assert caught.value.rank == 3, "errors name the rank as the group that started it counts"


def test_slices_ask_for_their_meshes_anew(group: WorkerGroup) -> None:
    batch = TensorDict({"x": torch.arange(2)}, [2])
    group.on_mesh(batch)
    assert group[:2].on_mesh(batch)["y"].tolist() == [0, 100], "one replica: both rows on it"
    assert group[2:].on_mesh(batch)["y"].tolist() == [2, 102], "its DP rank 1 is the slice's only shard"
    assert group.on_mesh(batch)["y"].tolist() == [0, 102]
    assert group[2:].dispatch_info("actor") == [0, 0]


def test_closing_what_started_nothing_ends_nothing(group: WorkerGroup) -> None:
    with group[:2] as part:
        assert part.alone(0) == 100
    assert part.is_dead
    with pytest.raises(WorkerGroupDeadError, match="alone was not sent: the worker group was closed"):
        part.alone(0)
    part.release()
    view = group.view()
    view.close()
    assert not group.is_dead
    assert group.alone(0) == 100


def test_a_plain_class_its_coroutines_and_the_end_of_its_group(make: Make) -> None:
    group = make(Plain, 2)
    assert group.greet("you") == ["plain greets you"] * 2, "a class that is no Worker will do"
    part = group[1:]
    named = group.view(Plain, "left_{}".format)
    assert named.greet("you") == ["left you"] * 2, "a view may show methods under other names than the rank has"
    assert named[0].greet("you") == ["left you"]

    waiting = group.wait_for_open()
    assert part.greet("me") == ["plain greets me"], "calls on one rank interleave"
    assert not waiting.done()
    group.open()
    assert waiting.get() == ["open", "open"]

    group.close()
    group.close()
    group.release()
    assert group.is_dead
    assert part.is_dead
    assert group.workers == []
    for one in (group, part):
        with pytest.raises(WorkerGroupDeadError, match="greet was not sent: the worker group was shut down"):
            one.greet("you")


def test_a_constructor_that_raises_takes_the_group_down(make: Make) -> None:
    with pytest.raises(ValueError, match="rank 0 does not want to start") as caught:
        make(Refusing, 1, 0)
    assert isinstance(caught.value, WorkerError)
    assert (caught.value.rank, caught.value.method) == (0, "Refusing.__init__")


def test_a_rank_that_leaves_makes_the_group_dead(make: Make) -> None:
    with make(Mortal, 2) as group:
        part = group[:1]
        with pytest.raises(WorkerDiedError, match=r"rank 1 .* died during leave; the group is dead") as caught:
            group.leave(1)
        assert (caught.value.rank, caught.value.method) == (1, "leave")
        assert "3" in caught.value.reason
        assert group.is_dead
        for one in (group, part):
            with pytest.raises(
                WorkerGroupDeadError, match="here was not sent: the worker group is dead: rank 1"
            ) as late:
                one.here()
            assert (late.value.rank, late.value.method) == (1, "leave")
        with pytest.raises(WorkerGroupDeadError, match="start_worker_aliveness_check was not sent"):
            group.start_worker_aliveness_check()


def test_a_check_notices_a_death_between_calls(make: Make) -> None:
    told: list[tuple[WorkerDiedError, str]] = []
    seen = threading.Event()

    def on_death(error: WorkerDiedError) -> None:
        told.append((error, threading.current_thread().name))
        seen.set()

    with make(Mortal, 2) as group:
        with pytest.raises(ValueError, match="on_death must be"):
            group.start_worker_aliveness_check(on_death="shout")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="every_n_seconds must be more than 0"):
            group.start_worker_aliveness_check(0.0)
        group.start_worker_aliveness_check(0.05, on_death="abort")
        assert group.here() == [0, 1]
        group.stop_worker_aliveness_check()
        group.start_worker_aliveness_check(0.05, on_death=on_death)
        with pytest.raises(ValueError, match="are being checked already"):
            group[:1].start_worker_aliveness_check(0.05)
        group.leave_later(1, 0.2)  # nobody waits for it
        assert seen.wait(30.0)
        assert (told[0][0].rank, told[0][0].method) == (1, None)
        assert told[0][1] == "worker-aliveness"
        with pytest.raises(WorkerGroupDeadError, match="rank 1"):
            group.here()
    assert len(told) == 1


def test_a_check_ends_with_its_group(group: WorkerGroup, make: Make) -> None:
    group.start_worker_aliveness_check(0.05)
    assert [thread for thread in threading.enumerate() if thread.name == "worker-aliveness"]
    group.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "worker-aliveness"]
