"""What a group puts around a worker class to run it as a Ray actor."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transferqueue.controller.actor_methods import actor_methods, leave
from transferqueue.controller.rank_log import own_log_paths
from transferqueue.workers.arguments import value_for_rank
from transferqueue.workers.data_proto import rows_of
from transferqueue.workers.frames import answer, read_call
from transferqueue.workers.loop_calls import call_in_loop
from transferqueue.workers.master_port import reserve_master_port
from transferqueue.workers.ranks import MASTER_ADDR, MASTER_PORT
from transferqueue.workers.ray_runtime import node_facts, own_accelerators, require_ray

FRAMED_CALL = "_tq_framed_call"
COUNTED_CALL = "_tq_counted_call"


@dataclass(frozen=True)
class ProcessFacts:
    """Where a rank runs, what its output goes to, and the numbers of its accelerators."""

    node_id: str
    node_ip: str
    pid: int
    log_paths: tuple[str, ...]
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Introduction:
    """What a rank tells a program that did not start it: the class that it runs, whether the constructor of that is
    done, the placement group that it runs in."""

    log_paths: tuple[str, ...]
    master: tuple[str, str]
    user_class: type
    is_built: bool
    placement_group: Any


class RankActor:
    """Mixed in before the worker class: the actor starts without building the worker.

    The group first needs to know where rank 0 runs; then all ranks build their workers at the same time (a constructor
    may wait for its peers in a collective), and an error in a constructor is an error of a call, with its traceback.
    """

    def __init__(self) -> None:
        """Nothing yet; see `_tq_build`."""

    _tq_user_class: type
    _tq_built = False
    _tq_in_loop = False

    def _tq_process_facts(self) -> ProcessFacts:
        facts = node_facts()
        return ProcessFacts(facts.node_id, facts.node_ip, facts.pid, own_log_paths(), own_accelerators())

    def _tq_introduce(self) -> Introduction:
        """For a program that did not start this actor."""
        return Introduction(
            self._tq_process_facts().log_paths,
            (os.environ.get(MASTER_ADDR, ""), os.environ.get(MASTER_PORT, "")),
            self._tq_user_class,
            self._tq_built,
            require_ray("a rank").util.get_current_placement_group(),
        )

    def _tq_reserve_master(self, port_range: Sequence[int] | None) -> tuple[str, str]:
        """``(address, port)`` for the rendezvous, asked of rank 0, whose process listens there from now on."""
        held = reserve_master_port(port_range)
        held.hand_over_once_initialized()
        return node_facts().node_ip, str(held.port)

    def _tq_build(
        self, rank: int, environment: Mapping[str, str], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """Sets what the rank reads from its environment and runs the constructor of the worker class."""
        os.environ.update(environment)
        mine = [value_for_rank(value, rank) for value in args]
        named = {name: value_for_rank(value, rank) for name, value in kwargs.items()}
        try:
            super().__init__(*mine, **named)
        except (KeyboardInterrupt, SystemExit) as error:
            leave(error, f"{self._tq_user_class.__qualname__}.__init__", self._tq_in_loop)
        self._tq_built = True

    def _tq_framed_call(self, frame: bytes) -> Any:
        """Runs the method that a frame names (see `transferqueue.workers.frames`); what it returned, as `answer`."""
        method, args, kwargs = read_call(frame)
        return answer(getattr(self, method)(*args, **kwargs))

    def _tq_counted_call(self, method: str, /, *args: Any, **kwargs: Any) -> tuple[Any, int]:
        """Runs a method; its output and, as a return value of its own that is known without fetching it, its rows."""
        output = getattr(self, method)(*args, **kwargs)
        return output, rows_of(output)


class AsyncRankActor(RankActor):
    """For a worker class with coroutine methods, whose actor runs all methods in an event loop."""

    _tq_in_loop = True

    async def _tq_framed_call(self, frame: bytes) -> Any:
        method, args, kwargs = read_call(frame)
        output = getattr(self, method)(*args, **kwargs)
        return answer(await output if inspect.isawaitable(output) else output)

    async def _tq_counted_call(self, method: str, /, *args: Any, **kwargs: Any) -> tuple[Any, int]:  # type: ignore[override]
        output = await call_in_loop(getattr(self, method), args, kwargs)
        return output, rows_of(output)


def actor_class(user_class: type) -> type:
    """A class with the methods of `user_class` that starts empty."""
    mixin = AsyncRankActor if _has_coroutines(user_class) else RankActor
    methods = actor_methods(user_class, mixin._tq_in_loop)
    members = {"__doc__": user_class.__doc__, "_tq_user_class": user_class, **methods}
    return type(user_class.__name__, (mixin, user_class), members)


def _has_coroutines(user_class: type) -> bool:
    return any(inspect.iscoroutinefunction(function) for _, function in inspect.getmembers(user_class))
