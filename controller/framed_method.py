"""A worker method as its ranks take it in frames: see `transferqueue.workers.frames`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transferqueue.controller.method_signature import MethodSignature
from transferqueue.controller.rank_actor import FRAMED_CALL
from transferqueue.controller.shared_arguments import SHARE_ABOVE_NBYTES
from transferqueue.workers.arguments import PerRank, arguments_for_ranks
from transferqueue.workers.frames import CallWriter, read_answer, worth_a_frame
from transferqueue.workers.ray_runtime import require_ray


class FramedMethod:
    """`workers` are the handles of the ranks' actors, in rank order; `name_on_actor` is what the method is called there
    (None: the same), for classes that share an actor."""

    def __init__(
        self, user_class: type, method_name: str, workers: Sequence[Any], name_on_actor: str | None = None
    ) -> None:
        self._name = name_on_actor or method_name
        task = f"{user_class.__name__}.{method_name}"  # what Ray's dashboard and logs show
        self._signature = MethodSignature(getattr(user_class, method_name), task)
        self._framed = [getattr(worker, FRAMED_CALL).options(name=task) for worker in workers]
        self._direct = [getattr(worker, self._name) for worker in workers]

    def send(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> SentCalls | None:
        """Starts the method on every rank. None for arguments that are better sent by Ray's own ways.

        Raises `TypeError` for arguments that the method does not take.
        """
        if not worth_a_frame(args, kwargs):
            return None
        if any(isinstance(value, PerRank) for value in (*args, *kwargs.values())):
            return self._send_pieces(args, kwargs)
        mine, named = arguments_for_ranks(args, kwargs, 1)[0]
        frame = CallWriter(self._name).frame(mine, named)
        if frame is None:
            return None
        self._signature.check(args, kwargs)
        payload = _put(frame) if len(self._framed) > 1 and len(frame) > SHARE_ABOVE_NBYTES else frame
        return SentCalls([call.remote(payload) for call in self._framed], [True] * len(self._framed))

    def _send_pieces(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> SentCalls:
        arguments = arguments_for_ranks(args, kwargs, len(self._framed))
        self._signature.check(args, kwargs)
        writer = CallWriter(self._name)
        sent = SentCalls([], [])
        # Ranks of one replica get the same objects, so the same frame: made once, and put once when it is large.
        same = [tuple(map(id, (*mine, *named.values()))) for mine, named in arguments]
        made: dict[tuple[int, ...], Any] = {}
        # One by one: the first rank works while the frame of the second is made.
        for (mine, named), key, framed, direct in zip(arguments, same, self._framed, self._direct, strict=True):
            if key not in made:
                frame = writer.frame(mine, named)
                large = frame is not None and len(frame) > SHARE_ABOVE_NBYTES
                made[key] = _put(frame) if large and same.count(key) > 1 else frame
            payload = made[key]
            sent.refs.append(direct.remote(*mine, **named) if payload is None else framed.remote(payload))
            sent.framed.append(payload is not None)
        return sent


def _put(frame: bytes | None) -> Any:
    return require_ray("RayWorkerGroup").put(frame)


@dataclass(frozen=True)
class SentCalls:
    """One reference per rank, in rank order, and whether its call went in a frame, so that its answer may be one."""

    refs: list[Any]
    framed: list[bool]

    def outputs(self, received: Sequence[Any]) -> list[Any]:
        """What the methods returned, from what came back."""
        return [read_answer(one) if framed else one for one, framed in zip(received, self.framed, strict=True)]


def takes_frames(user_class: type, method_name: str) -> bool:
    """Whether calls of a method may go in frames: those of a plain method, which Ray is not told how to run (a
    concurrency group, several return values) and which does not yield its results.
    """
    found = inspect.getattr_static(user_class, method_name, None)
    if not inspect.isfunction(found):
        return False
    function = inspect.unwrap(found)
    told = any(name.startswith("__ray_") for name in vars(function))
    return not (told or inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function))
