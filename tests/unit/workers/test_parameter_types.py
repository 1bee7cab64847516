"""What a bridged method asks for by its annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import torch
from tensordict import NonTensorData, TensorDict

from tests.unit.workers.fake_client import FakeClient
from transferqueue.metadata import BatchMeta, KVBatchMeta
from transferqueue.workers import DataProto, tqbridge
from transferqueue.workers.parameter_types import parameter_types

if TYPE_CHECKING:
    from somewhere import DataProto as Later  # type: ignore[import-not-found]


class TrainersOwn:
    """Another program's batch type, known by its two methods."""

    def __init__(self, columns: dict[str, Any], info: dict[str, Any]) -> None:
        self.columns, self.info = columns, info

    @classmethod
    def from_tensordict(cls, batch: TensorDict) -> TrainersOwn:
        columns = {name: batch[name] for name in batch.keys() if isinstance(batch[name], torch.Tensor)}
        return cls(columns, {name: batch[name] for name in batch.keys() if name not in columns})

    def to_tensordict(self) -> TensorDict:
        rows = len(next(iter(self.columns.values())))
        made = TensorDict(self.columns, [rows])
        for name, value in self.info.items():
            made[name] = NonTensorData(value)
        return made


def test_annotations_are_read_in_every_form() -> None:
    def function(
        self: Any,
        plain: TensorDict,
        first: DataProto,
        second: DataProto | None,
        third: Optional[DataProto] = None,  # noqa: UP045
        fourth: Annotated[DataProto, "a batch"] | None = None,
        unknown: Later | None = None,
        *rest: DataProto,
        own: TrainersOwn | None = None,
        **others: DataProto,
    ) -> None: ...

    types = parameter_types(function)
    assert types is not None
    assert types.by_position == (None, None, DataProto, DataProto, DataProto, DataProto, None)
    asked = {name: wanted for name, wanted in types.by_name.items() if wanted is not None}
    assert asked == dict.fromkeys(("first", "second", "third", "fourth"), DataProto) | {"own": TrainersOwn}
    assert (types.further_positions, types.further_names) == (DataProto, DataProto)
    batch = TensorDict({"x": torch.zeros(2)}, [2])
    assert types.converted(1, batch) is batch
    assert types.converted("plain", batch) is batch
    assert isinstance(types.converted(9, batch), DataProto)
    assert isinstance(types.converted("own", batch), TrainersOwn)
    assert isinstance(types.converted("anything", batch), DataProto)


def test_most_methods_ask_for_nothing() -> None:
    def plain(self: Any, batch: TensorDict, factor: float = 1.0, meta: BatchMeta | None = None) -> None: ...

    def bare(self, batch):  # type: ignore[no-untyped-def]
        ...

    assert parameter_types(plain) is parameter_types(bare) is None


def test_a_name_for_type_checking_only_is_this_packages() -> None:
    source = "from __future__ import annotations\ndef function(data: DataProto, other: Nowhere | None = None): ..."
    names: dict[str, Any] = {}
    exec(source, names)
    types = parameter_types(names["function"])
    assert types is not None
    assert types.by_position == (DataProto, None)


def put(client: FakeClient, rows: int, **info: Any) -> BatchMeta:
    meta = client.put(TensorDict({"x": torch.arange(rows)}, [rows]), None, "p")
    meta.extra_info = info
    return meta


def test_protos_in_and_out_of_a_bridged_function(client: FakeClient) -> None:
    seen: list[Any] = []

    @tqbridge()
    def function(data: DataProto, other: TensorDict, *, third: DataProto | None = None) -> DataProto:
        seen.extend([type(data), type(other), type(third), data.meta_info])
        data.batch["x"] += 1
        return DataProto.from_dict({"y": data.batch["x"]}, {"s": ["a", "b"]}, {"metrics": {"loss": 0.5}})

    result = function(put(client, 2, temperature=0.5), put(client, 2), third=put(client, 2))
    assert seen == [DataProto, TensorDict, DataProto, {"temperature": 0.5}]
    assert result.extra_info == {"metrics": {"loss": 0.5}}
    assert (client.column(result, "y"), client.column(result, "s")) == ([1, 2], ["a", "b"])
    assert "x" not in result.field_names or client.column(result, "x") == [0, 1], "what was not returned is not stored"
    by_value = function(DataProto.from_dict({"x": torch.arange(2)}), TensorDict({}, [2]))
    assert isinstance(by_value, DataProto)
    assert by_value.batch["y"].tolist() == [1, 2]


def test_keyed_metadata_empty_batches_and_whole_inputs(client: FakeClient) -> None:
    @tqbridge()
    def whole(data: DataProto) -> DataProto:
        return data.union(DataProto.from_dict({"n": torch.full((len(data),), len(data))}))

    keys = ["k0", "k1"]
    client.put_keys(keys, TensorDict({"x": torch.arange(2)}, [2]), "p")
    meta = KVBatchMeta(keys, [{}, {}], "p", ["x"], extra_info={"a": 1}, session="fake")
    result = whole(meta)
    assert (type(result), result.keys, result.fields, result.extra_info) == (KVBatchMeta, keys, ["n", "x"], {"a": 1})
    empty = whole(BatchMeta(extra_info={"a": 1}))
    assert (empty.size, empty.extra_info) == (0, {"a": 1})


def test_another_programs_type(client: FakeClient) -> None:
    @tqbridge()
    def function(data: TrainersOwn) -> TrainersOwn:
        return TrainersOwn({"y": data.columns["x"] * 2}, {"seen": sorted(data.info)})

    result = function(put(client, 3, epoch=1))
    assert (client.column(result, "y"), result.extra_info) == ([0, 2, 4], {"seen": ["epoch"]})


def test_a_coroutine_and_an_output_without_rows(client: FakeClient) -> None:
    import asyncio

    @tqbridge()
    async def function(data: DataProto) -> DataProto:
        await asyncio.sleep(0)
        return DataProto(meta_info={"mean": float(data.batch["x"].float().mean())})

    result = asyncio.run(function(put(client, 3)))
    assert (result.size, result.extra_info) == (3, {"mean": 1.0})
