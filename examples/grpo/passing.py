"""Two ways of handing a batch to a worker group: as metadata of rows in shared memory, or by value.

Both run the same stages on the same worker classes: a bridged method sees a TensorDict either way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tensordict import NonTensorData, TensorDict, TensorDictBase

from examples.common.metrics import Metrics, mean_metrics, merge_shards
from transferqueue import BatchMeta, TransferQueueClient
from transferqueue.controller import Broadcast

Batch = Any
"""What the controller holds of a batch: `BatchMeta` or `TensorDict`."""


class Passing(Protocol):
    """How the controller holds a batch and calls a stage with it."""

    name: str

    def load(self, batch: TensorDict, partition: str) -> Batch:
        """The loader's batch in the form that the controller holds."""

    def call(
        self, method: Callable[..., Any], batch: Batch, inputs: Sequence[str], **options: Any
    ) -> tuple[Batch, Metrics]:
        """Runs a stage on the `inputs` of the batch; the batch with the new fields, and what the stage reports."""

    def drop(self, partition: str) -> None:
        """The batch of that partition is not needed any more."""


class MetadataPassing:
    """The controller holds `BatchMeta`; ranks view their rows in shared memory and write their fields there."""

    name = "metadata"

    def __init__(self, client: TransferQueueClient) -> None:
        self._client = client

    def load(self, batch: TensorDict, partition: str) -> BatchMeta:
        return self._client.put(batch, partition_id=partition)

    def call(
        self, method: Callable[..., Any], batch: BatchMeta, inputs: Sequence[str], **options: Any
    ) -> tuple[BatchMeta, Metrics]:
        answer: BatchMeta = method(batch.select_fields(inputs), **_whole(options))
        metrics = mean_metrics(answer.extra_info)
        answer.clear_extra_info()
        return batch.union(answer), metrics

    def drop(self, partition: str) -> None:
        self._client.clear_partition(partition)


class BatchPassing:
    """The controller holds the TensorDict: every stage serialises its inputs, and its outputs come back by value."""

    name = "batch"

    def load(self, batch: TensorDict, partition: str) -> TensorDict:
        return batch

    def call(
        self, method: Callable[..., Any], batch: TensorDict, inputs: Sequence[str], **options: Any
    ) -> tuple[TensorDict, Metrics]:
        answer = method(batch.select(*inputs), **_whole(options))
        if not isinstance(answer, TensorDictBase):
            return batch, mean_metrics(merge_shards(answer))
        constants = {name: answer.get(name) for name in answer.keys() if isinstance(answer.get(name), NonTensorData)}
        for name in answer.keys():
            if name not in constants:
                batch.set(name, answer.get(name))
        return batch, mean_metrics({name: constant.data for name, constant in constants.items()})

    def drop(self, partition: str) -> None:
        """Nothing to do: the batch goes with the controller's last reference."""


def _whole(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options go to every rank as they are: they are no rows to be split."""
    return {name: Broadcast(value) for name, value in options.items()}


def make_passing(name: str, client: TransferQueueClient) -> MetadataPassing | BatchPassing:
    """The passing of that name."""
    return MetadataPassing(client) if name == "metadata" else BatchPassing()
