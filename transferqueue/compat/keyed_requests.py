"""Rows by key, as the surface has them: each call is the native one with other options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensordict import TensorDict, TensorDictBase

from transferqueue.aio import asynchronous
from transferqueue.codec import JAGGED
from transferqueue.compat.row_requests import DataParser, RowRequests
from transferqueue.compat.transfer_queue.metadata import BatchMeta, KVBatchMeta
from transferqueue.errors import FieldNotReadyError
from transferqueue.metadata import KVBatchMeta as NativeKVBatchMeta
from transferqueue.waiting import Steps, blocking, steps_of


class KeyedRequests(RowRequests):
    """Part of the compatible `TransferQueueClient`; the module's ``kv_*`` functions are these."""

    @blocking
    def kv_put(
        self,
        key: str,
        partition_id: str,
        fields: Mapping[str, Any] | TensorDictBase | None = None,
        tag: Mapping[str, Any] | None = None,
        data_parser: DataParser | None = None,
    ) -> Steps[KVBatchMeta]:
        """Stores one row under a key.

        Args:
            key: any string.
            partition_id: the partition; it and the key are created on first use.
            fields: a dict (tensors are the row's values, anything else is stored as a Python object) or a TensorDict
                of batch size 1.
            tag: merged into the row's tags.
            data_parser: called on the columns before they are stored.

        Returns:
            The key, all fields that it has now, and its merged tags.

        Raises:
            ValueError: neither fields nor tag, a nested tensor in the dict, fields of another kind or size.
        """
        if fields is None and tag is None:
            raise ValueError("Please provide at least one parameter of fields or tag.")
        if fields is not None and not isinstance(fields, (Mapping, TensorDictBase)):
            raise ValueError(f"`fields` can only be dict or TensorDict, not {type(fields).__name__}")
        with self._request("kv_put", ValueError, TypeError):
            meta = yield from steps_of(self._native.kv_put)(
                key, partition_id, fields, tag, data_parser, lists_are_rows=True
            )
        return KVBatchMeta.of(meta)

    @blocking
    def kv_batch_put(
        self,
        keys: str | list[str],
        partition_id: str,
        fields: TensorDictBase | None = None,
        tags: Sequence[Mapping[str, Any]] | None = None,
        data_parser: DataParser | None = None,
    ) -> Steps[KVBatchMeta]:
        """Stores one row per key, all at once; see `kv_put`.

        Args:
            keys: distinct.
            fields: a TensorDict of batch size [number of keys].
            tags: one dict per key.

        Raises:
            ValueError: neither fields nor tags, duplicate keys, sizes that do not match.
            AttributeError: `fields` is a plain dict.
        """
        if fields is None and tags is None:
            raise ValueError("Please provide at least one parameter of `fields` or `tags`.")
        listed = _checked_keys(keys)
        if fields is not None:
            _ = fields.batch_size  # AttributeError for a dict, as in the surface
        with self._request("kv_batch_put", ValueError, TypeError):
            meta = yield from steps_of(self._native.kv_batch_put)(
                listed, partition_id, fields, tags, data_parser, lists_are_rows=True
            )
        return KVBatchMeta.of(meta)

    @blocking
    def kv_batch_get(
        self, keys: str | list[str], partition_id: str, select_fields: str | Sequence[str] | None = None
    ) -> Steps[TensorDict]:
        """The rows of `keys`, in their order. Keys and fields that do not exist are left out.

        Returns:
            Batch size [rows]; tensors with a shape are jagged. Without any field left: no columns, batch size 0.

        Raises:
            ValueError: none of the keys exists, some key has no data, or no key is given.
            TypeError: keys are no str or list of str.
        """
        listed = _checked_keys(keys)
        with self._request("kv_batch_get", ValueError, TypeError):
            try:
                batch = yield from steps_of(self._native.kv_batch_get)(
                    listed, partition_id, select_fields, missing="skip", missing_fields="skip", layout=JAGGED
                )
            except FieldNotReadyError as error:
                raise ValueError(f"Some fields are not ready in all the requested keys! {error}") from error
        if not batch.batch_size[0]:
            raise ValueError("keys or partition were not found!")
        return batch if len(batch.keys()) else TensorDict({}, batch_size=[0])

    @blocking
    def kv_batch_get_by_meta(
        self, meta: NativeKVBatchMeta, select_fields: str | Sequence[str] | None = None
    ) -> Steps[TensorDict]:
        """The rows of a KVBatchMeta; its `fields` limit what is read. See `kv_batch_get`.

        Raises:
            ValueError: no partition, or select_fields that are not among the metadata's fields.
        """
        if meta.partition_id is None:
            raise ValueError("Must provide partition_id in the input KVBatchMeta.")
        fields: Any = meta.fields
        if select_fields is not None:
            fields = [select_fields] if isinstance(select_fields, str) else list(select_fields)
            if meta.fields is None or any(name not in meta.fields for name in fields):
                raise ValueError(
                    f"Some of select_fields were not found in the metadata: asked for {fields}, it has {meta.fields}"
                )
        return (yield from steps_of(self.kv_batch_get)(meta.keys, meta.partition_id, fields))

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, dict[str, Any]]]:
        """``{partition: {key: tags}}`` in the order of creation; an unknown partition gives ``{}``."""
        with self._request("kv_list"):
            return self._native.kv_list(partition_id)

    def kv_clear(self, keys: str | list[str], partition_id: str) -> None:
        """Removes the rows of `keys`; those that do not exist are ignored."""
        listed = _checked_keys(keys)
        with self._request("kv_clear", ValueError, TypeError):
            self._native.kv_clear(listed, partition_id)

    def kv_retrieve_meta(self, keys: str | list[str], partition_id: str, create: bool = False) -> BatchMeta:
        """The rows of `keys`, in their order, with the fields that all have and their tags as custom_meta. Keys that do
        not exist are left out, or created.

        Raises:
            ValueError: no key. TypeError: keys are no str or list of str.
        """
        listed = _checked_keys(keys)
        distinct = list(dict.fromkeys(listed))
        with self._request("kv_retrieve_meta"):
            meta = self._native.kv_retrieve_meta(distinct, partition_id, create, missing="skip")
            if len(distinct) != len(listed) and meta.size:
                found = self._native.kv_retrieve_keys(meta.global_indexes, partition_id)
                position = {key: row for row, key in enumerate(found)}
                meta = meta.select_samples([position[key] for key in listed if key in position])
        return BatchMeta.of(meta)

    def kv_retrieve_keys(self, global_indexes: int | list[int], partition_id: str) -> list[str | None]:
        """The key of each row, None for a row that does not exist.

        Raises:
            ValueError: no index. TypeError: no ints.
            RuntimeError: no such partition.
        """
        if isinstance(global_indexes, list):
            if not global_indexes:
                raise ValueError("Received an empty list as `global_indexes`.")
            if not all(isinstance(index, int) for index in global_indexes):
                raise TypeError("Not all elements in `global_indexes` are int.")
        elif not isinstance(global_indexes, int):
            raise TypeError("Only int or list of int are allowed as `global_indexes`.")
        with self._request("kv_retrieve_keys"):
            return self._native.kv_retrieve_keys(global_indexes, partition_id)

    async_kv_put = asynchronous(kv_put)
    async_kv_batch_put = asynchronous(kv_batch_put)
    async_kv_batch_get = asynchronous(kv_batch_get)
    async_kv_batch_get_by_meta = asynchronous(kv_batch_get_by_meta)
    async_kv_list = asynchronous(kv_list)
    async_kv_clear = asynchronous(kv_clear)
    async_kv_retrieve_meta = asynchronous(kv_retrieve_meta)
    async_kv_retrieve_keys = asynchronous(kv_retrieve_keys)


def _checked_keys(keys: Any) -> list[str]:
    """A list of the keys. ValueError for none, TypeError for anything but a str or a list of them."""
    if isinstance(keys, str):
        return [keys]
    if not isinstance(keys, list):
        raise TypeError(f"Only string or list of strings are allowed as `keys`, not {type(keys).__name__}.")
    if not keys:
        raise ValueError("Received an empty list as keys.")
    if not all(isinstance(key, str) for key in keys):
        raise TypeError("Not all elements in `keys` are strings.")
    return keys
