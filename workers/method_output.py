"""What a bridged method returned, sorted into columns to store and values for extra_info."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from tensordict import NonTensorData, NonTensorStack, TensorDict, TensorDictBase

from transferqueue.codec import new_batch
from transferqueue.errors import SchemaMismatchError
from transferqueue.workers.columns import is_constant


class MethodOutput:
    """A TensorDict or dict that a method returned for a batch of `rows` rows.

    `take_columns` gives what is stored, `extra_info` are the values for the batch as a whole; `caller` says for an
    error who returned it. A `NonTensorData` is such a value, except under the name of an input column
    (`input_fields`): tensordict turns a column of equal values into one, and such a column stays a column.
    """

    def __init__(
        self,
        output: TensorDictBase | dict[str, Any],
        rows: int,
        input_fields: Collection[str],
        caller: Callable[[], str],
    ) -> None:
        self.extra_info: dict[str, Any] = {}
        self._columns: TensorDict | None = None
        if isinstance(output, dict):
            self.extra_info = dict(output)
            return
        columns: dict[str, Any] = {}
        for name in output.keys():
            entry = output.get(name)
            if not is_constant(entry):
                columns[name] = entry
            elif name in input_fields:
                columns[name] = NonTensorStack(*(NonTensorData(entry.data) for _ in range(rows)))
            else:
                self.extra_info[name] = entry.data
        if not columns:
            return
        if not output.batch_size:
            raise SchemaMismatchError(
                f"{caller()} returned a TensorDict with fields {sorted(columns)} but without a batch dimension; "
                f"its batch has {rows} rows: return TensorDict(..., batch_size=[{rows}])",
                expected=rows,
                found=None,
                fields=tuple(sorted(columns)),
            )
        if output.batch_size[0] != rows:
            raise SchemaMismatchError(
                f"{caller()} returned {output.batch_size[0]} rows for a batch of {rows} rows; outputs are stored on "
                "the rows of the first metadata argument, one for one",
                expected=rows,
                found=int(output.batch_size[0]),
                fields=tuple(sorted(columns)),
            )
        self._columns = new_batch(columns, rows)

    def take_columns(self) -> TensorDict | None:
        """What is stored: a TensorDict with all columns, None without any. Given out once, so that it can be dropped
        by whoever stores it."""
        columns, self._columns = self._columns, None
        return columns


def is_bridged(output: object) -> bool:
    """Whether an output becomes metadata; everything else passes through."""
    return isinstance(output, (TensorDictBase, dict)) and not isinstance(output, NonTensorStack)
