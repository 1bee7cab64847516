"""An in-memory stand-in for the data plane's client: what the bridge asks of it, in dictionaries of rows.

Injected through `transferqueue.workers.session_client.client_for`, the one seam of the bridge.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict, TensorDictBase

from transferqueue.codec import plan_alloc
from transferqueue.errors import FieldNotReadyError, KeyNotFoundError
from transferqueue.metadata import BatchMeta
from transferqueue.read_report import ReadReport

SESSION = "fake"


class FakeClient:
    """Rows by global index: field -> value. `calls` records what was asked, `stored` what every put wrote,
    `counted` what was counted of every bridged call.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # calls are atomic, as the client's are
        self.rows: dict[int, dict[str, Any]] = {}
        self.keys: dict[tuple[str, str], int] = {}
        self.calls: list[str] = []
        self.stored: list[tuple[list[int], list[str]]] = []
        self.counted: list[tuple[str, dict[str, Any]]] = []

    def put(
        self, data: TensorDictBase, metadata: BatchMeta | None = None, partition_id: str | None = None
    ) -> BatchMeta:
        self.calls.append("put")
        if metadata is None:
            start = len(self.rows)
            indexes = list(range(start, start + data.batch_size[0]))
            metadata = BatchMeta(indexes, partition_id or "p", session=SESSION)
        real = metadata.unpad().global_indexes
        self.stored.append((real, sorted(data.keys())))
        with self._lock:
            self._store(data, metadata)
        return metadata.add_fields(data)

    def _store(self, data: TensorDictBase, metadata: BatchMeta) -> None:
        for name in data.keys():
            entry = data.get(name)
            values = entry.unbind(0) if isinstance(entry, torch.Tensor) else entry.tolist()
            for index, value, pad in zip(metadata.global_indexes, values, metadata.padding_mask, strict=True):
                if pad:
                    continue
                self.rows.setdefault(index, {})[name] = value.clone() if isinstance(value, torch.Tensor) else value

    def put_keys(self, keys: Sequence[str], data: TensorDictBase, partition_id: str) -> BatchMeta:
        meta = self.put(data, partition_id=partition_id)
        self.keys.update({(partition_id, key): index for key, index in zip(keys, meta.global_indexes, strict=True)})
        return meta

    def kv_retrieve_meta(self, keys: Sequence[str], partition_id: str) -> BatchMeta:
        self.calls.append("kv_retrieve_meta")
        unknown = [key for key in keys if (partition_id, key) not in self.keys]
        if unknown:
            raise KeyNotFoundError(f"no keys {unknown}", keys=tuple(unknown))
        indexes = [self.keys[partition_id, key] for key in keys]
        meta = BatchMeta(indexes, partition_id, session=SESSION)
        with self._lock:
            names = sorted({name for index in indexes for name in self.rows[index]})
            return meta.add_fields(self._columns(meta, names))

    def fields_meta(self, partition_id: str, fields: Sequence[str] | None = None) -> BatchMeta:
        self.calls.append("fields_meta")
        meta = BatchMeta(list(self.rows), partition_id, session=SESSION)
        names = fields or sorted({name for row in self.rows.values() for name in row})
        return meta.add_fields(self._columns(meta, list(names)))[:0]

    def kv_retrieve_keys(self, global_indexes: Sequence[int], partition_id: str) -> list[str | None]:
        by_index = {index: key for (partition, key), index in self.keys.items() if partition == partition_id}
        return [by_index.get(index) for index in global_indexes]

    def get_data_with_report(self, metadata: BatchMeta) -> tuple[TensorDict, ReadReport]:
        self.calls.append("get")
        batch = self._columns(metadata, metadata.field_names)
        return batch, ReadReport(rows=metadata.size, bytes_viewed=1000, bytes_copied=10, resolve_s=0.5, wait_s=0.25)

    def get_data(self, metadata: BatchMeta, *, fields: Sequence[str]) -> TensorDict:
        self.calls.append("get")
        return self._columns(metadata, fields)

    def kv_batch_get(self, keys: Sequence[str], partition_id: str, select_fields: Sequence[str]) -> TensorDict:
        return self.get_data(self.kv_retrieve_meta(keys, partition_id), fields=select_fields)

    async def async_put(self, data: TensorDictBase, metadata: BatchMeta) -> BatchMeta:
        self.calls.append("async")
        return self.put(data, metadata)

    async def async_get_data_with_report(self, metadata: BatchMeta) -> tuple[TensorDict, ReadReport]:
        self.calls.append("async")
        return self.get_data_with_report(metadata)

    async def async_kv_retrieve_meta(self, keys: Sequence[str], partition_id: str) -> BatchMeta:
        self.calls.append("async")
        return self.kv_retrieve_meta(keys, partition_id)

    async def async_kv_retrieve_keys(self, global_indexes: Sequence[int], partition_id: str) -> list[str | None]:
        return self.kv_retrieve_keys(global_indexes, partition_id)

    def alloc(
        self, fields: Mapping[Any, Any], *, partition_id: str, metadata: BatchMeta, timeout: float | None = None
    ) -> FakeAllocation:
        self.calls.append("alloc")
        assert metadata.partition_names == (partition_id,)
        return FakeAllocation(self, fields, metadata)

    async def async_alloc(self, fields: Mapping[Any, Any], *, partition_id: str, metadata: BatchMeta) -> FakeAllocation:
        self.calls.append("async")
        return self.alloc(fields, partition_id=partition_id, metadata=metadata)

    def count_method(self, method: str, **figures: Any) -> None:
        self.counted.append((method.rpartition(".")[2], figures))

    def column(self, meta: BatchMeta, name: str) -> list[Any]:
        """The stored values of one field, tensors as lists."""
        values = [self.rows[index][name] for index in meta.global_indexes]
        return [value.tolist() if isinstance(value, torch.Tensor) else value for value in values]

    def _columns(self, meta: BatchMeta, names: Sequence[str]) -> TensorDict:
        columns: dict[str, Any] = {}
        for name in names:
            missing = [index for index in meta.global_indexes if name not in self.rows[index]]
            if missing:
                raise FieldNotReadyError(f"{name} is not ready on rows {missing}", fields=(name,), rows=tuple(missing))
            values = [self.rows[index][name] for index in meta.global_indexes]
            columns[name] = _column(values, meta, name)
        return TensorDict(columns, batch_size=[meta.size])


class FakeAllocation:
    """Tensors that become rows at `commit`. `held` says whether somebody held one of them then."""

    def __init__(self, client: FakeClient, fields: Mapping[Any, Any], metadata: BatchMeta) -> None:
        self._client = client
        self._metadata = metadata
        self._data: TensorDict | None = plan_alloc(fields, metadata.size).private_tensors()
        self._open = True
        self.held: bool | None = None

    @property
    def data(self) -> TensorDict:
        assert self._data is not None
        return self._data

    def commit(self, extra: Mapping[str, Any] | None = None) -> BatchMeta:
        assert self._open
        self._open = False
        data, self._data = self.data, None
        columns = {name: data.get(name) for name in self.names(data)}
        # One for `data`, which this frame holds, and one for the call that asks.
        self.held = sys.getrefcount(data) > 2
        self._client.calls.append("commit held" if self.held else "commit")
        return self._client.put(TensorDict({**columns, **(extra or {})}, [self._metadata.size]), self._metadata)

    def abort(self) -> None:
        if self._open:
            self._open = False
            self._client.calls.append("abort")

    @staticmethod
    def names(data: TensorDict) -> list[str]:
        return [str(name) for name in data.keys()]


def _column(values: list[Any], meta: BatchMeta, name: str) -> Any:
    if not values:
        schema = meta.schema_of(name)
        if schema.torch_dtype is None:
            return NonTensorStack()
        return torch.zeros((0, *(schema.shape or ())), dtype=schema.torch_dtype)
    if not isinstance(values[0], torch.Tensor):
        return NonTensorStack(*(NonTensorData(value) for value in values))
    if len({value.shape for value in values}) == 1:
        return torch.stack(values)
    return torch.nested.nested_tensor(values, layout=torch.jagged)
