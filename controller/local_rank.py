"""One rank of a `LocalWorkerGroup`: a worker object and the thread that runs its calls."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from transferqueue.controller.class_with_init_args import ClassWithInitArgs
from transferqueue.workers.arguments import value_for_rank
from transferqueue.workers.loop_calls import call_in_loop
from transferqueue.workers.rank_nodes import RankNode, RankNodes
from transferqueue.workers.ranks import RankInfo
from transferqueue.workers.ray_runtime import node_facts
from transferqueue.workers.worker import Worker

_environment = threading.Lock()


class RankExit(Exception):
    """A method left with `SystemExit`, which in a process of its own would end the rank."""


class LocalRank:
    """Runs calls one after the other in the order they were sent, as a Ray actor does; a worker class with coroutine
    methods has an event loop instead, in which its calls interleave.
    """

    def __init__(self, rank: int, world_size: int, class_with_args: ClassWithInitArgs) -> None:
        self.worker = _built(rank, world_size, class_with_args)
        cls = type(self.worker)
        has_coroutines = any(inspect.iscoroutinefunction(function) for _, function in inspect.getmembers(cls))
        self._lane: _Loop | _Thread = (_Loop if has_coroutines else _Thread)(f"local-rank-{rank}")

        self.exit_text = ""
        """How a method ended the rank; empty while it lives."""

    def submit(self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Future[Any]:
        """Starts a method. That there is none of the name is an error of the call."""
        if isinstance(self._lane, _Loop):
            call = self._lane.submit(lambda: call_in_loop(getattr(self.worker, method_name), args, kwargs))
        else:
            call = self._lane.submit(lambda: getattr(self.worker, method_name)(*args, **kwargs))
        call.add_done_callback(self._note_exit)
        return call

    def _note_exit(self, call: Future[Any]) -> None:
        if not call.cancelled() and isinstance(call.exception(), RankExit):
            self.exit_text = str(call.exception())

    def stop(self) -> None:
        """Takes no more calls; those that run go on to their end, those that wait are cancelled."""
        self._lane.stop()


class _Thread:
    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        return self._executor.submit(_without_exit, call)

    def stop(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


class _Loop:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=_run_loop, args=(self._loop,), name=name, daemon=True).start()
        self._finalizer = weakref.finalize(self, self._loop.call_soon_threadsafe, self._loop.stop)

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(_awaited(call), self._loop)

    def stop(self) -> None:
        self._finalizer()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))  # lets the cancelled ones see it
    finally:
        loop.close()


def _without_exit(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except SystemExit as error:
        raise RankExit(f"the method left with SystemExit({error.code!r})") from error


async def _awaited(call: Callable[[], Any]) -> Any:
    try:
        output = call()
        return await output if inspect.isawaitable(output) else output
    except SystemExit as error:
        raise RankExit(f"the method left with SystemExit({error.code!r})") from error


def _built(rank: int, world_size: int, class_with_args: ClassWithInitArgs) -> Any:
    """The worker, its constructor having seen the environment of its rank."""
    args = [value_for_rank(value, rank) for value in class_with_args.args]
    kwargs = {name: value_for_rank(value, rank) for name, value in class_with_args.kwargs.items()}
    facts = node_facts()
    nodes = RankNodes([RankNode(facts.node_ip, facts.node_id)] * world_size)
    with _rank_environment(RankInfo(rank, world_size, rank, world_size, backend="local", nodes=nodes)):
        worker = class_with_args.user_class(*args, **kwargs)
        if isinstance(worker, Worker):
            worker.rank_info  # noqa: B018  (read and kept while the environment is this rank's)
    return worker


@contextmanager
def _rank_environment(info: RankInfo) -> Iterator[None]:
    # Ranks of one process share its environment: a rank's own variables stand there only while its worker is built.
    with _environment:
        before = dict(os.environ)
        os.environ.update(info.to_environment())
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
