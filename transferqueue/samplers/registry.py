"""A session's sampler as its creator configured it, in a form that every process of the session can read.

Any client may run the sampler, so a class or instance given to ``init`` travels with the session's description: by name
and arguments when it is a built-in, else pickled (by value through cloudpickle where that is installed, so that a
sampler of the main script works in its workers).
"""

from __future__ import annotations

import base64
import copy
import importlib
import inspect
import json
import pickle
from collections.abc import Mapping
from typing import Any

from transferqueue.errors import CorruptSegmentError, PickleNotAllowedError
from transferqueue.samplers.base import BaseSampler
from transferqueue.samplers.grpo_group_n_sampler import GRPOGroupNSampler
from transferqueue.samplers.rank_aware_sampler import RankAwareSampler
from transferqueue.samplers.seqlen_balanced_sampler import SeqlenBalancedSampler
from transferqueue.samplers.sequential_sampler import SequentialSampler
from transferqueue.samplers.states import decode_state, encode_state

_BUILT_IN: dict[str, type[BaseSampler]] = {
    kind.__name__: kind for kind in (SequentialSampler, GRPOGroupNSampler, RankAwareSampler, SeqlenBalancedSampler)
}


def make_sampler(sampler: Any) -> BaseSampler:
    """A sampler from what `controller.sampler` may hold: a class, an instance, or the name of a built-in.

    Raises:
        ValueError: an unknown name. TypeError: something that is no sampler.
    """
    if isinstance(sampler, str):
        if sampler not in _BUILT_IN:
            raise ValueError(f"Could not find sampler {sampler!r}; built-in samplers: {', '.join(_BUILT_IN)}")
        return _BUILT_IN[sampler]()
    made = sampler() if inspect.isclass(sampler) else sampler
    if not isinstance(made, BaseSampler):
        raise TypeError(f"controller.sampler must be a BaseSampler, its class, or a name; not {sampler!r}")
    return made


def describe_sampler(sampler: Any) -> dict[str, str]:
    """JSON-ready form of `controller.sampler`; refuses what `make_sampler` would refuse."""
    made = make_sampler(sampler)
    if isinstance(sampler, str):
        return {"name": sampler}
    if (arguments := _arguments_of(made)) is not None:
        return {"name": type(made).__name__, **({"arguments": json.dumps(arguments)} if arguments else {})}
    try:
        pickler = importlib.import_module("cloudpickle")
    except ImportError:
        pickler = pickle
    try:
        data = pickler.dumps(made, protocol=5)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the sampler {type(made).__name__} cannot be pickled, and every process of a session needs it: {error}"
        ) from error
    return {"class": type(made).__name__, "pickle": base64.b64encode(data).decode()}


def _arguments_of(sampler: BaseSampler) -> dict[str, int] | None:
    """What makes a built-in sampler that is as new; None for any other."""
    kind = type(sampler)
    if _BUILT_IN.get(kind.__name__) is not kind:
        return None
    arguments = {name: vars(sampler).get(name) for name in kind._configuration}
    if not all(type(value) is int for value in arguments.values()):
        return None
    found = {name: value for name, value in arguments.items() if value is not None}
    return found if vars(kind(**found)) == vars(sampler) else None


def load_sampler(described: Mapping[str, str], *, allow_pickle: bool = True) -> BaseSampler:
    """The sampler that `describe_sampler` described.

    Raises:
        PickleNotAllowedError: it is a class of the creator's own, hence pickled, and `allow_pickle` is false.
        CorruptSegmentError: the description is none.
    """
    if "name" in described:
        try:
            return _BUILT_IN[described["name"]](**json.loads(described.get("arguments", "{}")))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptSegmentError(f"the session's description names no sampler: {error!r}") from error
    if "pickle" not in described:
        return SequentialSampler()
    if not allow_pickle:
        raise PickleNotAllowedError(
            f"the session's sampler, a {described.get('class')}, is pickled, and unpickling runs code of the session's "
            "creator. If you trust it, set allow_pickle=True; the built-in samplers need no pickle",
            field=None,
        )
    try:
        sampler = pickle.loads(base64.b64decode(described["pickle"]))
    except Exception as error:  # code of the sampler's class: anything may come out of it
        raise CorruptSegmentError(
            f"the sampler {described.get('class')!r} of the session cannot be unpickled here: {error!r}. Its class "
            "must be importable in every process of the session, from the same code"
        ) from error
    return make_sampler(sampler)


class SamplerRun:
    """A private copy of a sampler, loaded with the state of one partition and task."""

    def __init__(self, prototype: BaseSampler, state: bytes, *, allow_pickle: bool = True) -> None:
        self._sampler = copy.copy(prototype)
        initial = prototype.save_checkpoint()
        self._initial = encode_state(initial)
        self._sampler.load_checkpoint(decode_state(state, allow_pickle=allow_pickle) if state else initial)

    def has_cached_result(self, sampling_config: Mapping[str, Any]) -> bool:
        """See `BaseSampler.has_cached_result`. A sampler that caches does so under the names that the configuration
        gives it, or under its own defaults ("")."""
        partition, task = (str(sampling_config.get(name, "")) for name in ("partition_id", "task_name"))
        return self._sampler.has_cached_result(partition, task, sampling_config)

    def sample(
        self, ready_indexes: list[int], batch_size: int, partition: Any, sampling_config: Mapping[str, Any]
    ) -> tuple[list[int], list[int]]:
        """Calls the sampler; checks the shape of its answer.

        Raises:
            TypeError: the sampler does not return two lists of indexes.
        """
        arguments = dict(sampling_config)
        if _accepts(self._sampler.sample, "partition"):
            arguments.setdefault("partition", partition)
        answer = self._sampler(ready_indexes, batch_size, **arguments)
        try:
            sampled, consumed = answer
            return [int(index) for index in sampled], [int(index) for index in consumed]
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{type(self._sampler).__name__}.sample must return (sampled, consumed), two lists of indexes; "
                f"got {answer!r}"
            ) from error

    def state(self) -> bytes:
        """The state to keep: empty when nothing changed since the sampler was configured."""
        state = encode_state(self._sampler.save_checkpoint())
        return b"" if state == self._initial else state


def _accepts(function: Any, name: str) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.kind is p.VAR_KEYWORD or p.name == name for p in parameters)
