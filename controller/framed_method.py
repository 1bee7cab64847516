"""A worker method as its ranks take it in frames: see `transferqueue.workers.frames`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from transferqueue.controller.rank_actor import FRAMED_CALL
from transferqueue.controller.shared_arguments import SHARE_ABOVE_NBYTES
from transferqueue.workers.frames import calls_for_ranks
from transferqueue.workers.ray_runtime import require_ray


class FramedMethod:
    """`workers` are the handles of the ranks' actors, in rank order."""

    def __init__(self, user_class: type, method_name: str, workers: Sequence[Any]) -> None:
        self._name = method_name
        function = inspect.signature(getattr(user_class, method_name))
        self._signature = function.replace(parameters=list(function.parameters.values())[1:])
        task = f"{user_class.__name__}.{method_name}"  # what Ray's dashboard and logs show
        self._calls = [getattr(worker, FRAMED_CALL).options(name=task) for worker in workers]

    def send(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """Starts the method on every rank; the references to its answers. None for arguments that fit no frame.

        Raises `TypeError` for arguments that the method does not take.
        """
        frames = calls_for_ranks(self._name, args, kwargs, len(self._calls))
        if frames is None:
            return None
        self._signature.bind(*args, **kwargs)
        payloads: list[Any] = list(frames)
        if len(frames) > 1 and frames[0] is frames[1] and len(frames[0]) > SHARE_ABOVE_NBYTES:
            payloads = [require_ray("RayWorkerGroup").put(frames[0])] * len(frames)
        return [call.remote(payload) for call, payload in zip(self._calls, payloads, strict=True)]


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
