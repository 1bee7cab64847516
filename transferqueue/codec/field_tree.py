"""Nested batches, leaf by leaf: names on the way in, TensorDicts on the way out.

A leaf of a nested TensorDict is a field of its own, named by its keys joined with ``/``; its path stands in its
schema, so a plain field whose name has a slash in it (``actor/entropy``) keeps its name and stays flat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict, is_tensor_collection
from tensordict.tensorclass import is_non_tensor

from transferqueue.codec.schema import check_name
from transferqueue.errors import SchemaMismatchError

_MAX_DEPTH = 100


class Leaf(NamedTuple):
    """Where a value stands: its field name, its keys when nested (else empty), batch sizes beyond rows on the way."""

    name: str
    path: tuple[str, ...] = ()
    inner_batch: tuple[tuple[int, ...], ...] = ()


class RowList(list[Any]):
    """The rows of a field that came out of a lazy stack: tensors of one type become dense again."""


def is_batch(value: Any) -> bool:
    """A TensorDict or tensorclass (not a non-tensor entry, which tensordict also counts as a collection)."""
    return is_tensor_collection(value) and not is_non_tensor(value) and not isinstance(value, NonTensorStack)


def leaves(batch: Any, n_rows: int) -> Iterator[tuple[Leaf, Any]]:
    """Every field of a TensorDict or dict, nested ones flattened.

    Raises:
        SchemaMismatchError: two fields with one name, a name that is none, a nested batch with other rows, one inside
            itself.
    """
    seen: dict[str, tuple[str, ...]] = {}
    for path, inner_batch, value in _walk(batch, (), (), n_rows):
        name = path[0] if len(path) == 1 else "/".join(path)
        if name in seen:
            raise SchemaMismatchError(
                f"fields {seen[name]} and {path} would both be stored as {name!r}: rename one", fields=(name,)
            )
        seen[name] = path
        yield Leaf(name) if len(path) == 1 else Leaf(name, path, inner_batch), value


def _walk(
    batch: Any, path: tuple[str, ...], inner_batch: tuple[tuple[int, ...], ...], n_rows: int
) -> Iterator[tuple[tuple[str, ...], tuple[tuple[int, ...], ...], Any]]:
    for key, value in _items(batch):
        here = (*path, check_name(key))
        if len(here) > _MAX_DEPTH:
            raise SchemaMismatchError(f"a batch nested more than {_MAX_DEPTH} deep, or inside itself: {here[:3]}...")
        if isinstance(value, torch.Tensor):
            yield here, inner_batch, value
        elif isinstance(value, Mapping) and not is_tensor_collection(value):
            yield from _walk(value, here, (*inner_batch, ()), n_rows)
        elif not isinstance(value, (list, str)) and is_batch(value) and not _is_unbatched(value):
            nested: Any = value
            sizes = tuple(nested.batch_size)
            if sizes[:1] != (n_rows,):
                raise SchemaMismatchError(
                    f"field {'/'.join(here)!r} is a TensorDict of batch size {list(sizes)} in a batch of {n_rows} rows",
                    fields=("/".join(here),),
                    expected=n_rows,
                    found=sizes,
                )
            yield from _walk(value, here, (*inner_batch, sizes[1:]), n_rows)
        else:
            yield here, inner_batch, value


def _is_unbatched(value: Any) -> bool:
    """tensordict's UnbatchedTensor: one tensor for the whole batch, hence a constant of it."""
    return bool(getattr(type(value), "_pass_through", False))


def _items(batch: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(batch, LazyStackedTensorDict):
        return _lazy_items(batch)
    return iter(batch.items())


def _lazy_items(batch: Any) -> Iterator[tuple[Any, Any]]:
    """Fields of a lazy stack, whose rows may differ in shape: stacking them could fail, and would copy."""
    rows = list(batch.unbind(0))
    if not rows:
        yield from TensorDict({}, [0]).items()
        return
    for key in _common_keys(rows):
        values = [row.get(key) for row in rows]
        if all(isinstance(value, torch.Tensor) for value in values):
            yield key, RowList(values)
        elif all(is_batch(value) for value in values):
            yield key, LazyStackedTensorDict(*values, stack_dim=0)
        else:
            yield (
                key,
                [stack_values(value) if isinstance(value, NonTensorStack) else _content(value) for value in values],
            )


def _content(value: Any) -> Any:
    return value.data if is_non_tensor(value) else value


def stack_values(stack: NonTensorStack) -> list[Any]:
    """`stack.tolist()`; five times as fast for a stack of plain values, which is what batches hold."""
    if type(stack) is NonTensorStack and len(stack.batch_size) == 1:
        elements = stack.tensordicts
        try:
            if all(type(element) is NonTensorData for element in elements):
                return [element._non_tensordict["data"] for element in elements]
        except (AttributeError, KeyError):
            pass  # a tensordict that keeps its values elsewhere
    listed: list[Any] = stack.tolist()
    return listed


def _common_keys(rows: list[Any]) -> list[Any]:
    keys = list(rows[0].keys())
    expected = set(keys)
    for position, row in enumerate(rows):
        different = expected.symmetric_difference(row.keys())
        if different:
            raise SchemaMismatchError(
                f"row {position} of the batch and row 0 do not have the same fields: {sorted(map(str, different))} "
                "is in one of them only",
                fields=tuple(map(str, different)),
            )
    return keys


def nest(
    columns: dict[str, Any], paths: dict[str, tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]], n_rows: int
) -> Any:
    """The TensorDict of decoded columns [rows, ...]; fields with a path go back into nested TensorDicts."""
    if not paths:
        return new_batch(columns, n_rows)
    root: dict[str, Any] = {}
    batch_sizes: dict[tuple[str, ...], tuple[int, ...]] = {}
    for name, column in columns.items():
        path, inner_batch = paths.get(name, ((name,), ()))
        node = root
        for depth, key in enumerate(path[:-1]):
            below = node.setdefault(key, {})
            if not isinstance(below, dict):
                raise SchemaMismatchError(
                    f"field {'/'.join(path[: depth + 1])!r} holds rows of its own and is also the TensorDict around "
                    f"field {name!r}: read them in two calls (fields=...)",
                    fields=(name,),
                )
            node = below
            batch_sizes.setdefault(path[: depth + 1], inner_batch[depth] if depth < len(inner_batch) else ())
        if path[-1] in node:
            raise SchemaMismatchError(
                f"field {name!r} is also the TensorDict around other fields: read them in two calls (fields=...)",
                fields=(name,),
            )
        node[path[-1]] = column
    return _build(root, (), batch_sizes, n_rows)


def _build(node: dict[str, Any], path: tuple[str, ...], sizes: dict[tuple[str, ...], tuple[int, ...]], n: int) -> Any:
    entries = {
        key: _build(value, (*path, key), sizes, n) if isinstance(value, dict) else value for key, value in node.items()
    }
    return new_batch(entries, n, sizes.get(path, ()))


def new_batch(entries: dict[str, Any], n_rows: int, inner: tuple[int, ...] = ()) -> Any:
    """A TensorDict over `entries`, whose batch sizes are known to be right and are not checked again."""
    size = torch.Size((n_rows, *inner))
    state = _state_of_a_batch()
    if state is None:
        return _constructed(entries, size)
    # The object itself, where tensordict keeps it as we know: half the time when its code is not in the caches.
    batch = object.__new__(TensorDict)
    own = batch.__dict__
    own.update(state)
    own["_tensordict"] = dict(entries)
    own["_batch_size"] = size
    return batch


def _constructed(entries: dict[str, Any], size: torch.Size) -> Any:
    unsafe = getattr(TensorDict, "_new_unsafe", None)
    if unsafe is None:
        return TensorDict(entries, batch_size=size)
    return unsafe(entries, batch_size=size, nested=False)  # no entry is a dict


@lru_cache(maxsize=1)
def _state_of_a_batch() -> dict[str, Any] | None:
    """What all TensorDicts made of plain entries have in common; None where they are not a dict and a size beside that.

    Tried on the first call: what tensordict keeps in such an object may change with any version of it.
    """
    entries = {"x": torch.zeros(2)}
    state = dict(getattr(_constructed(entries, torch.Size((2,))), "__dict__", {}))
    kept, size = state.pop("_tensordict", None), state.pop("_batch_size", None)
    plain = type(kept) is dict and kept == entries and kept is not entries and size == torch.Size((2,))
    # Anything else that is not a constant would be shared by all batches.
    return state if plain and all(value is None for value in state.values()) else None
