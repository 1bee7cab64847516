"""The batch types that a bridged method asks for by its annotations: see `transferqueue.batch_types`."""

from __future__ import annotations

import inspect
import types
import typing
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from transferqueue.batch_types import is_batch_type
from transferqueue.workers.data_proto import DataProto

_OWN: dict[str, Any] = {"DataProto": DataProto}


@dataclass(frozen=True)
class ParameterTypes:
    """The batch types with which parameters of a function are annotated: those given by position, by name, and of the
    arguments beyond (``*args``, ``**kwargs``)."""

    by_position: tuple[type | None, ...]
    by_name: Mapping[str, type | None]
    further_positions: type | None
    further_names: type | None

    def converted(self, key: int | str, batch: Any) -> Any:
        """A TensorDict as the type that this argument is annotated with; itself where that is no batch type."""
        if isinstance(key, str):
            wanted = self.by_name.get(key, self.further_names)
        elif key < len(self.by_position):
            wanted = self.by_position[key]
        else:
            wanted = self.further_positions
        return batch if wanted is None else wanted.from_tensordict(batch)  # type: ignore[attr-defined]


def parameter_types(function: Callable[..., Any]) -> ParameterTypes | None:
    """What `function` wants instead of TensorDicts; None when it wants none, which is the usual case.

    Annotations may be text, and a union with None. A ``DataProto`` that is not there at run time, being imported for
    type checking only, is the one of this package.
    """
    positions: list[type | None] = []
    names: dict[str, type | None] = {}
    further: dict[Any, type | None] = {}
    for parameter in inspect.signature(function).parameters.values():
        wanted = _batch_type_in(parameter.annotation, function)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            further[parameter.kind] = wanted
            continue
        if parameter.kind is not parameter.KEYWORD_ONLY:
            positions.append(wanted)
        if parameter.kind is not parameter.POSITIONAL_ONLY:
            names[parameter.name] = wanted
    if not any([*positions, *names.values(), *further.values()]):
        return None
    kinds = inspect.Parameter
    return ParameterTypes(tuple(positions), names, further.get(kinds.VAR_POSITIONAL), further.get(kinds.VAR_KEYWORD))


def _batch_type_in(annotation: Any, function: Callable[..., Any]) -> type | None:
    if annotation is inspect.Parameter.empty:
        return None
    if isinstance(annotation, str):
        annotation = _evaluated(annotation, function)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        return next((found for arg in typing.get_args(annotation) if (found := _batch_type_in(arg, function))), None)
    return annotation if is_batch_type(annotation) else None


def _evaluated(annotation: str, function: Callable[..., Any]) -> Any:
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return eval(annotation, {}, ChainMap(names, _OWN))  # the program's own text, as typing.get_type_hints does it
    except Exception:  # whatever it is, it names nothing that is here
        return None
