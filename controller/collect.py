"""Waiting for ranks, so that the first failure is seen whichever rank it happens on, and named as what it is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from transferqueue.controller.death_alarm import raise_posted
from transferqueue.controller.death_report import death_of
from transferqueue.controller.errors import WorkerDiedError, WorkerError, worker_error
from transferqueue.controller.rank_facts import RankFacts
from transferqueue.controller.remote_traceback import one_line, plain_text, traceback_text
from transferqueue.errors import TransferTimeoutError
from transferqueue.workers.ray_runtime import require_ray

DEATH_GRACE_S = 3.0
"""After an error on one rank, how long the others are watched for a death that caused it.

A rank that loses its peer in a collective raises within milliseconds; Ray reports the dead process up to a second
later. Raising at once would show the symptom and hide the cause.
"""

FIRST_LOOK_S = 1.0
"""How long all ranks are waited for at once before each is waited for on its own."""

LOOK_S = 1.0
"""How often a wait looks whether a rank of another group died meanwhile (see `death_alarm`)."""


def gather(refs: Sequence[Any], ranks: Sequence[RankFacts], method: str, timeout_s: float | None = None) -> list[Any]:
    """The outputs behind `refs`, in their order; `ranks` says which rank computes each.

    Raises the first failure without waiting for the other ranks: `WorkerDiedError` when a process died (also when
    another rank's error came first), else `WorkerError`; `TransferTimeoutError` naming the ranks that have not
    answered after `timeout_s`.
    """
    ray = require_ray("a worker group")
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    try:
        # Nearly every call ends here, in one question instead of three for each rank. It stops at the first error of
        # any rank and says nothing of the others, hence what is below.
        return list(ray.get(list(refs), timeout=FIRST_LOOK_S if timeout_s is None else min(timeout_s, FIRST_LOOK_S)))
    except ray.exceptions.RayError:
        pass
    position_of = {ref: position for position, ref in enumerate(refs)}
    outputs: list[Any] = [None] * len(refs)
    pending = list(refs)
    failed: WorkerError | None = None
    while pending:
        remaining_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        look_s = LOOK_S if remaining_s is None else min(remaining_s, LOOK_S)
        ready, pending = ray.wait(pending, num_returns=1, timeout=look_s)
        raise_posted()
        if not ready and (remaining_s is None or remaining_s > look_s):
            continue
        if pending:
            more, pending = ray.wait(pending, num_returns=len(pending), timeout=0)
            ready += more
        for ref in ready:
            position = position_of[ref]
            try:
                outputs[position] = ray.get(ref)
            except ray.exceptions.RayError as error:
                described = _describe(error, ranks[position], method)
                if isinstance(described, WorkerDiedError):
                    raise described from failed
                if failed is None:
                    failed = described
                    deadline_s = _sooner(deadline_s, time.monotonic() + DEATH_GRACE_S)
        if not ready:
            break
    if failed is not None:
        raise failed
    if pending:
        late = [ranks[position_of[ref]] for ref in pending]
        raise TransferTimeoutError(
            f"{method}: {len(late)} of {len(refs)} ranks have not answered after {timeout_s:g} s: "
            f"{', '.join(facts.text for facts in late)}",
            timeout_s=timeout_s,
            missing=[facts.rank for facts in late],
        )
    return outputs


def _sooner(deadline_s: float | None, other_s: float) -> float:
    return other_s if deadline_s is None else min(deadline_s, other_s)


def _describe(error: Any, facts: RankFacts, method: str) -> WorkerError:
    exceptions = require_ray("a worker group").exceptions
    # A task error first: one whose cause is a dead actor that the method itself called is an instance of both.
    if isinstance(error, exceptions.RayTaskError):
        remote = traceback_text(error, error.cause)
        return worker_error(
            error.cause,
            f"{method} failed on {facts.text}: {one_line(error.cause)}\n{remote}",
            rank=facts.rank,
            node=facts.node,
            pid=facts.pid,
            method=method,
            remote_traceback=remote,
        )
    deaths = (exceptions.RayActorError, exceptions.WorkerCrashedError, exceptions.OutOfMemoryError)
    text = plain_text(error)
    if isinstance(error, deaths):
        return death_of(facts, method, text)
    return worker_error(
        error,
        f"{method} on {facts.text}: its result could not be fetched: {text}",
        rank=facts.rank,
        node=facts.node,
        pid=facts.pid,
        method=method,
        remote_traceback=text,
    )
