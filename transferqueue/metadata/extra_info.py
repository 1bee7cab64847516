"""How batch-wide values of several pieces become one.

Pieces come back from ranks: a value that is equal on all of them is kept once, a key that only some have is kept, and
values that differ are collected in a list in the order of the pieces, reduced by a named rule, or refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from transferqueue.metadata.copying import copy_value

Reduction = str | Callable[[list[Any]], Any]
OnConflict = Literal["collect", "raise"]

REDUCTIONS = ("mean", "sum", "max", "min", "first", "last", "list")


def merge_extra_info(
    pieces: Sequence[Mapping[str, Any]],
    *,
    reduce: Mapping[str, Reduction] | None = None,
    on_conflict: OnConflict = "collect",
    owner: str = "concat",
) -> dict[str, Any]:
    """One dict for all `pieces`, deep-copied.

    Args:
        pieces: the extra_info of each piece, in order.
        reduce: key -> ``"mean" | "sum" | "max" | "min" | "first" | "last" | "list"`` or a function of the list of
            values (of the pieces that have the key). Applied also where the values are equal: the sum of four
            equal counts is their sum. A key that no piece has is left alone.
        on_conflict: what happens to values that differ and have no rule: ``"collect"`` them in a list, or ``"raise"``.

    Raises:
        ValueError: an unknown rule, or values that differ under ``"raise"``.
        TypeError: a rule that does not fit the values, named with its key.
    """
    rules = dict(reduce or {})
    for key, rule in rules.items():
        if not callable(rule) and rule not in REDUCTIONS:
            raise ValueError(f"{owner}: unknown reduction {rule!r} for {key!r}; there are {', '.join(REDUCTIONS)}")
    if on_conflict not in ("collect", "raise"):
        raise ValueError(f'{owner}: on_conflict must be "collect" or "raise", got {on_conflict!r}')

    merged: dict[str, Any] = {}
    for key in dict.fromkeys(key for piece in pieces for key in piece):
        values = [piece[key] for piece in pieces if key in piece]
        if key in rules:
            merged[key] = copy_value(_reduced(key, rules[key], values, owner))
        elif all(values_equal(values[0], value) for value in values[1:]):
            merged[key] = copy_value(values[0])
        elif on_conflict == "raise":
            position, other = next((i, v) for i, v in enumerate(values) if not values_equal(values[0], v))
            raise ValueError(
                f"{owner}: extra_info key {key!r} has conflicting values in the pieces: "
                f"{_short(values[0])} in the first, {_short(other)} in number {position}"
            )
        else:
            merged[key] = [copy_value(value) for value in values]
    return merged


def values_equal(a: Any, b: Any) -> bool:
    """Equal type and content; NaN equals NaN, arrays and tensors are compared as a whole, at any depth."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(values_equal(value, b[key]) for key, value in a.items())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(values_equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float):
        return a == b or (a != a and b != b)
    if isinstance(a, np.ndarray):
        nan_can_occur = a.dtype.kind in "fc"
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=nan_can_occur)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(a, torch.Tensor):
        return _tensors_equal(torch, a, b)
    try:
        return bool(a == b)
    except Exception:  # a user's __eq__ may raise anything (arrays inside objects do); unequal is the safe answer
        return False


def _tensors_equal(torch: Any, a: Any, b: Any) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape or a.device != b.device:
        return False
    if a.is_floating_point() or a.is_complex():
        if a.element_size() == 1:  # the 8-bit floats have no comparison of their own
            a, b = a.float(), b.float()
        return bool((torch.eq(a, b) | (torch.isnan(a) & torch.isnan(b))).all())
    return bool(torch.equal(a, b))


def _reduced(key: str, rule: Reduction, values: list[Any], owner: str) -> Any:
    if callable(rule):
        return rule(list(values))
    if rule == "first":
        return values[0]
    if rule == "last":
        return values[-1]
    if rule == "list":
        return list(values)
    try:
        return _numeric(rule, values)
    except (TypeError, ValueError, RuntimeError) as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        raise TypeError(f"{owner}: extra_info key {key!r} of type {kinds} has no {rule}: {error}") from error


def _numeric(rule: str, values: list[Any]) -> Any:
    operations: dict[str, Any]
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(value, torch.Tensor) for value in values):
        stacked = torch.stack([torch.as_tensor(value) for value in values])
        if rule == "mean" and not (stacked.is_floating_point() or stacked.is_complex()):
            stacked = stacked.to(torch.get_default_dtype())
        operations = {"mean": torch.mean, "sum": torch.sum, "max": torch.amax, "min": torch.amin}
        return operations[rule](stacked, dim=0)
    if any(isinstance(value, np.ndarray) for value in values):
        operations = {"mean": np.mean, "sum": np.sum, "max": np.max, "min": np.min}
        return operations[rule](np.stack(values), axis=0)
    for value in values:
        if isinstance(value, (str, bytes)) or not isinstance(value, (int, float, complex, np.number, np.bool_)):
            raise TypeError("only numbers, arrays and tensors can be reduced so")
    if rule == "mean":
        return sum(values) / len(values)
    operations = {"sum": sum, "max": max, "min": min}
    return operations[rule](values)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:100] + "..."
