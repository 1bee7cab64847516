"""Wrong arguments: each is its own error that says what to do, and the store is what it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict
from torch._subclasses.fake_tensor import FakeTensorMode

import transferqueue as tq
from tests.support.sessions import embedded
from transferqueue import TransferQueueClient

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def session() -> Iterator[tq.Session]:
    with embedded() as found:
        yield found


@pytest.fixture
def client(session: tq.Session) -> Iterator[TransferQueueClient]:
    """A store with three rows, whose content every test must leave as it is."""
    found = session.client
    data = TensorDict({"x": torch.arange(3), "s": NonTensorStack("a", "b", "c")}, [3])
    found.kv_batch_put(["a", "b", "c"], "p", data, [{"row": row} for row in range(3)])
    found.put(TensorDict({"y": torch.arange(2)}, [2]), partition_id="q")
    before = content(found)
    yield found
    assert content(found) == before
    for partition in found.get_partition_list():
        found.clear_partition(partition)


def content(client: TransferQueueClient) -> dict[str, Any]:
    stats = client.stats()
    found: dict[str, Any] = {
        "list": client.kv_list(),
        "bytes": (stats.used_bytes, stats.live_bytes, stats.pending_bytes, stats.retired_bytes, stats.leased_bytes),
        "rows": stats.rows,
    }
    for partition in client.get_partition_list():
        meta = client.get_meta(["x", "y"], 0, partition, mode="force_fetch")
        found[partition] = (meta.global_indexes, meta.production_status.tolist())
    if "p" in client.get_partition_list():
        found["x"] = client.kv_batch_get(["a", "b", "c"], "p", ["x"])["x"].tolist()
    return found


def numbers(rows: int, name: str = "x") -> TensorDict:
    return TensorDict({name: torch.arange(rows)}, [rows])


def inside_itself(batch: Any = None) -> Any:
    """A TensorDict, which lets nobody do so by its interface, or a dict."""
    if batch is None:
        batch = numbers(3)
        batch._tensordict["self"] = batch
    else:
        batch["self"] = batch
    return batch


def transposed(rows: int) -> TensorDict:
    return TensorDict({"x": torch.zeros(2, rows).t()}, [rows])


def put_under_fake_mode(client: TransferQueueClient, batch: TensorDict) -> None:
    with FakeTensorMode():
        client.put(batch, partition_id="p")


def freed() -> torch.Tensor:
    tensor = torch.arange(4)
    tensor.untyped_storage().resize_(0)
    return tensor


Call = Callable[[TransferQueueClient], Any]


Mismatch, Full = tq.SchemaMismatchError, tq.StorageFullError


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        # batch sizes
        (lambda c: c.kv_batch_put(["a", "b"], "p", numbers(3)), Mismatch, r"keys \(2\) does not match.*3"),
        (lambda c: c.kv_batch_put(["a"], "p", tags=[{}, {}]), ValueError, "does not match"),
        (lambda c: c.kv_put("a", "p", numbers(2)), Mismatch, "kv_batch_put"),
        (lambda c: c.put(numbers(2), metadata=c.kv_retrieve_meta(["a"], "p")), Mismatch, "2 rows.*1"),
        (lambda c: c.put(TensorDict({"x": torch.arange(2)}, []), partition_id="p"), Mismatch, "batch_size"),
        (lambda c: c.put({"x": torch.arange(2)}, partition_id="p"), TypeError, "TensorDict"),
        (lambda c: c.kv_batch_put(["a"], "p", {"x": torch.arange(1)}), TypeError, "TensorDict"),
        # keys
        (lambda c: c.kv_batch_put(["a", "b", "a"], "p", numbers(3)), ValueError, "Got duplicated keys.*'a'"),
        (lambda c: c.kv_retrieve_meta(["a", "a"], "p"), ValueError, "Got duplicated keys"),
        (lambda c: c.kv_batch_put([], "p", numbers(0)), ValueError, "at least one key"),
        (lambda c: c.kv_batch_get([], "p"), ValueError, "at least one key"),
        (lambda c: c.kv_clear([], "p"), ValueError, "at least one key"),
        (lambda c: c.kv_put("", "p", {"x": 1}), ValueError, "empty string"),
        (lambda c: c.kv_batch_get(["a", ""], "p"), ValueError, "empty string"),
        (lambda c: c.kv_batch_get(("a",), "p"), TypeError, "tuple"),
        (lambda c: c.kv_batch_get(["a", 5], "p"), TypeError, "int"),
        (lambda c: c.kv_put(b"a", "p", {"x": 1}), TypeError, "bytes"),
        (lambda c: c.kv_put("\ud800", "p", {"x": 1}), ValueError, ""),
        (lambda c: c.kv_batch_get(["a", "zz"], "p"), tq.KeyNotFoundError, "'zz'"),
        (lambda c: c.kv_batch_get(["z" * 10_000], "p"), tq.KeyNotFoundError, "10002 characters"),
        (lambda c: c.kv_batch_get(["a"], "nowhere"), tq.PartitionNotFoundError, "'nowhere'.*'p'"),
        (lambda c: c.kv_put("a", "p"), ValueError, "fields, tags"),
        (lambda c: c.kv_put("a", "p", tag=5), TypeError, "dict"),
        (lambda c: c.kv_put("a", "p", tag={5: 1}), TypeError, "names of tags"),
        (lambda c: c.kv_batch_get(["a"], "p", missing="maybe"), ValueError, "missing"),
        # fields
        (lambda c: c.kv_batch_get(["a"], "p", ["x", "zz"]), tq.FieldNotReadyError, "'zz'.*timeout="),
        (lambda c: c.kv_batch_get(["a"], "p", []), ValueError, "at least one"),
        (lambda c: c.kv_batch_get(["a"], "p", ["x", "x"]), ValueError, "duplicated"),
        (lambda c: c.kv_batch_get(["a"], "p", [5]), TypeError, "int"),
        (lambda c: c.get_data(c.kv_retrieve_meta(["a"], "p"), fields=["zz"]), tq.FieldNotReadyError, "'zz'"),
        (lambda c: c.kv_put("a", "p", {"x": torch.nested.nested_tensor([torch.ones(1)])}), ValueError, "kv_batch_put"),
        (lambda c: c.kv_put("a", "p", {5: 1}), ValueError, "field name"),
        # names
        (lambda c: c.kv_put("a", "nul\0", {"x": 1}), ValueError, "partition name"),
        (lambda c: c.kv_put("a", "", {"x": 1}), ValueError, "partition name"),
        (lambda c: c.kv_put("a", None, {"x": 1}), TypeError, "partition_id"),
        (lambda c: c.kv_put("a", "p", {"nul\0": 1}), ValueError, "NUL"),
        (lambda c: c.kv_put("a", "p", {"": 1}), ValueError, "empty"),
        (lambda c: c.put(numbers(2, "nul\0"), partition_id="p"), ValueError, "NUL"),
        (lambda c: c.kv_batch_get(["a"], "p", ["nul\0"]), ValueError, "NUL"),
        (lambda c: c.wait("p", fields="nul\0", count=1, timeout=0), ValueError, "NUL"),
        # where to
        (lambda c: c.put(numbers(2)), ValueError, "partition_id"),
        (lambda c: c.put(numbers(1), metadata=c.kv_retrieve_meta(["a"], "p"), partition_id="q"), ValueError, "'q'"),
        (lambda c: c.put(numbers(1), metadata=tq.KVBatchMeta(keys=["a"], tags=[{}])), TypeError, "KVBatchMeta"),
        (lambda c: c.get_data(tq.KVBatchMeta(keys=["a"], tags=[{}])), TypeError, "kv_batch_get_by_meta"),
        (lambda c: c.get_data(None), TypeError, "BatchMeta"),
        (lambda c: c.get_data(c.kv_retrieve_meta(["a"], "p"), mode="fast"), ValueError, "cow, shared, copy"),
        (lambda c: c.put(numbers(1), partition_id="p", timeout=-1), ValueError, "timeout"),
        (lambda c: c.put(numbers(1), partition_id="p", timeout="soon"), TypeError, "timeout.*'soon'"),
        # what alloc is asked for
        (lambda c: c.alloc({"x": ((1.5,), torch.int8)}, partition_id="p", batch_size=1), Mismatch, "'x'"),
        (lambda c: c.alloc({"x": ((2,), torch.int8)}, partition_id="p", batch_size=1.5), TypeError, "batch_size"),
        (lambda c: c.alloc({"x": ((2,), torch.int8)}, partition_id="p", batch_size=True), TypeError, "batch_size"),
        (lambda c: c.get_meta(["x"], 1 << 30, "p", mode="insert"), ValueError, "at most"),
        (lambda c: c.alloc("x", partition_id="p"), TypeError, "alloc takes a dict"),
        (lambda c: c.alloc(numbers(2), partition_id="p", batch_size=2), TypeError, "alloc takes a dict"),
        # values of another kind than the argument's
        (lambda c: c.get_data(c.kv_retrieve_meta(["a"], "p"), fields=5), TypeError, "fields must be.*5"),
        (lambda c: c.check_production_status(torch.tensor(3), "p"), TypeError, "fields must be"),
        (lambda c: c.get_consumption_status(None, "p"), TypeError, "task_name must be a str, not NoneType"),
        (lambda c: c.reset_consumption("p", ["t"]), TypeError, "task_name must be a str, not list"),
        (lambda c: c.get_meta("x", 1, "p", task_name=numbers(1)), TypeError, "task_name must be a str"),
        (lambda c: c.get_meta("x", 1, "p", task_name="t", sampling_config="n=2"), TypeError, "sampling_config.*'n=2'"),
        (lambda c: c.claim("t", "p", fields="x", batch_size=1, lease_s=1, sampling=[5]), TypeError, "sampling must"),
        (lambda c: c.kv_retrieve_keys("x", "p"), TypeError, "global indexes must be ints.*'x'"),
        (lambda c: c.kv_retrieve_keys([1.5], "p"), TypeError, "global indexes must be ints"),
        (lambda c: c.kv_retrieve_keys(1 << 64, "p"), ValueError, "no global index"),
        (lambda c: c.kv_batch_put(["a"], "p", tags=5), TypeError, "tags must be a sequence.*5"),
        (lambda c: c.kv_batch_put(["a"], "p", numbers(1), data_parser=5), TypeError, "data_parser must be a function"),
        (lambda c: c.kv_batch_get(["a"], "p", device=[5]), TypeError, "device must be.*5"),
        (lambda c: c.kv_batch_get(["a"], "p", device="gpu"), ValueError, "device: 'gpu'"),
        (lambda c: c.kv_batch_get(["a"], "p", mode=np.array(["cow", "copy"])), ValueError, "mode must be one of"),
        (lambda c: c.get_data(c.kv_retrieve_meta(["a"], "p"), layout=np.ones(2)), ValueError, "layout must be one of"),
        (lambda c: c.kv_retrieve_meta(["a"], "p", missing=np.ones(2)), ValueError, "missing must be one of"),
        (lambda c: c.set_limits("p", max_bytes=1 << 64), ValueError, "max_bytes: 18446744073709551616 is more"),
        (lambda c: c.set_limits("p", max_bytes="9" * 400 + "GiB"), ValueError, "max_bytes: 9999.* is more"),
        (lambda c: c.set_limits("p", consumers=5), ValueError, "consumers must be names"),
        (lambda c: c.set_limits("p", when_exceeded=np.ones(2)), ValueError, "when_exceeded must be one of"),
        # what cannot be stored
        (lambda c: c.put(numbers(2, "\ud800"), partition_id="p"), ValueError, "surrogate"),
        (lambda c: c.kv_put("a", "p", tag={"call": lambda: 1}), ValueError, "tag 'call'.*function"),
        (lambda c: c.kv_put("a", "p", tag={"text": "\ud800"}), ValueError, "tag 'text'"),
        (lambda c: c.kv_put("a", "p", tag={"\ud800": 1}), ValueError, "name of tag.*surrogate"),
        (lambda c: c.put(inside_itself(), partition_id="p"), Mismatch, "nested more than 100 deep, or inside itself"),
        (lambda c: put_under_fake_mode(c, transposed(3)), Mismatch, "'x' cannot be read"),
        (lambda c: c.kv_put("a", "p", {"x": {"tensor": freed()}}), Mismatch, "row 0 of field 'x'.*storage"),
        (lambda c: c.save_checkpoint("never made", metadata=inside_itself({})), ValueError, "must be JSON"),
        (lambda c: c.put(numbers(2), partition_id="p", timeout=float("nan")), ValueError, "timeout"),
        (lambda c: c.claim("t", "p", fields="x", batch_size=1, lease_s=10**400), ValueError, "lease_s"),
        (lambda c: c.kv_put("a", "p", {"x": torch.ones(3, 3).to_mkldnn()}), Mismatch, "'x' has layout"),
        (lambda c: c.kv_put("a", "p", {"x": NonTensorStack("a", 1)}), ValueError, "'x'.*kv_batch_put"),
        (lambda c: tq.BatchMeta.concat([c.kv_retrieve_meta(["a"], "p"), None]), TypeError, "concat.*NoneType"),
        (lambda c: c.kv_retrieve_meta(["a"], "p").union(5), TypeError, "union.*int"),
        (lambda c: tq.Jagged(torch.ones(2, dtype=torch.int64, device="meta"), torch.int8), Mismatch, "lengths"),
        (lambda c: tq.Jagged(torch.nested.nested_tensor([torch.ones(2)]), torch.int8), Mismatch, "lengths"),
        (lambda c: tq.Jagged([1], torch.int8, torch.ones(2)), Mismatch, "row_shape must be ints"),
        (lambda c: c.alloc({"x": ((1 << 70,), torch.int8)}, partition_id="p", batch_size=1), Full, "'x'"),
        (lambda c: c.alloc({"x": ((1 << 63, 0), torch.int8)}, partition_id="p", batch_size=1), Full, "'x'"),
        # sizes beyond the store
        (
            lambda c: c.put(TensorDict({"x": torch.zeros(2, 40 << 20, dtype=torch.uint8)}, [2]), partition_id="p"),
            Full,
            r"storage\.size",
        ),
        (lambda c: c.alloc({"x": ((1 << 40,), torch.int8)}, partition_id="p", batch_size=1), Full, "fit"),
        # sizes beyond 64 bits, which must not wrap to small ones
        (lambda c: c.alloc({"x": ((1 << 40, 1 << 40), torch.int8)}, partition_id="p", batch_size=1), Full, "1208925"),
        (lambda c: c.alloc({"x": ((1 << 63,), torch.int8)}, partition_id="p", batch_size=1), Full, f"{1 << 63}"),
        (lambda c: c.alloc({"x": ((2,), torch.int8)}, partition_id="p", batch_size=1 << 70), Full, f"{1 << 71}"),
        (lambda c: c.alloc({"x": tq.Jagged([1 << 62], torch.int64)}, partition_id="p"), Full, f"{1 << 65}"),
        (
            lambda c: c.put(TensorDict({"x": torch.zeros(1).expand(1 << 20, 1 << 42)}, [1 << 20]), partition_id="p"),
            Full,
            f"{1 << 64}",
        ),
        (
            lambda c: c.kv_put("a", "p", tag={"huge": "x" * (40 << 20)}),
            Full,
            "index",
        ),
        (
            lambda c: c.kv_batch_put([f"{n}" + "k" * 10_000 for n in range(3000)], "p", tags=[{}] * 3000),
            Full,
            "index",
        ),
    ],
)  # fmt: skip
def test_is_refused_and_changes_nothing(
    client: TransferQueueClient, call: Call, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call(client)


def test_metadata_of_cleared_rows_raises_whatever_was_put_since(client: TransferQueueClient) -> None:
    meta = client.put(numbers(3), partition_id="q")
    client.clear_samples(meta.select_samples([1]))
    replacement = client.put(numbers(3), partition_id="q")
    for call in (
        lambda: client.get_data(meta),
        lambda: client.put(numbers(3, "z"), metadata=meta),
        lambda: client.wait("q", fields="x", metadata=meta, timeout=0),
        lambda: client.coalesce(meta),
        lambda: client.set_custom_meta(tagged(meta)),
    ):
        with pytest.raises(tq.StaleMetadataError) as caught:
            call()
        assert list(caught.value.rows) == [meta.global_indexes[1]]
        assert isinstance(caught.value, KeyError)
    client.clear_samples(meta)
    client.clear_samples(replacement)


def tagged(meta: tq.BatchMeta) -> tq.BatchMeta:
    new = meta.copy()
    new.update_custom_meta([{"tag": 1}] * new.size)
    return new


def test_metadata_that_was_made_up(client: TransferQueueClient) -> None:
    for meta in (tq.BatchMeta([10**15], "p", {"x": {}}), tq.BatchMeta([0], "nowhere", {"x": {}})):
        with pytest.raises(tq.StaleMetadataError):
            client.get_data(meta)
        client.clear_samples(meta)
    other_partition = tq.BatchMeta(client.kv_retrieve_meta(["a"], "p").global_indexes, "q", {"x": {}})
    with pytest.raises(tq.StaleMetadataError):
        client.get_data(other_partition)
    client.clear_samples(other_partition)


def test_rows_named_twice_are_not_written(client: TransferQueueClient) -> None:
    meta = client.kv_retrieve_meta(["a", "b"], "p")
    twice = tq.BatchMeta([meta.global_indexes[0]] * 2, "p", {"x": {}}, session=meta.session)
    with pytest.raises(ValueError, match="twice"):
        client.put(numbers(2), metadata=twice)
    assert client.get_data(twice)["x"].tolist() == [0, 0]


class Raises:
    """A value that cannot be pickled."""

    def __reduce__(self) -> Any:
        raise RuntimeError("not me")


def test_a_value_that_cannot_be_stored_names_its_field(client: TransferQueueClient) -> None:
    with pytest.raises(ValueError, match="bad"):
        client.kv_put("a", "p", {"x": torch.tensor(9), "bad": Raises()})
    with pytest.raises(ValueError):
        client.kv_batch_put(["a"], "p", TensorDict({"sparse": torch.eye(1).to_sparse()}, [1]))


def test_a_sampler_that_raises_or_lies_marks_nothing(client: TransferQueueClient) -> None:
    class Bad(tq.BaseSampler):
        answer: Any = None

        def sample(self, ready_indexes: list[int], batch_size: int, *args: Any, **kwargs: Any) -> Any:
            if self.answer is None:
                raise RuntimeError("no idea")
            return self.answer, self.answer

    rows = client.kv_retrieve_meta(["a", "b", "c"], "p").global_indexes
    sampler = Bad()
    previous, client._sampler_prototype = client._sampler_prototype, sampler
    try:
        for answer, error in ((None, RuntimeError), ([10**9], ValueError), ([rows[0]] * 2, ValueError), (5, TypeError)):
            sampler.answer = answer
            with pytest.raises(error):
                client.get_meta("x", 2, "p", task_name="t")
            assert client.get_consumption_status("t", "p")[1].tolist() == [0, 0, 0]  # type: ignore[union-attr]
    finally:
        client._sampler_prototype = previous
    client.reset_consumption("p")


def test_rows_of_which_nothing_would_be_stored_are_refused(client: TransferQueueClient) -> None:
    constants = TensorDict({"config": NonTensorData("v", batch_size=[2])}, [2])
    with pytest.raises(tq.SchemaMismatchError, match=r"'config'.*NonTensorStack"):
        client.put(constants, partition_id="p")
    with pytest.raises(tq.SchemaMismatchError, match="'config'"):
        client.kv_batch_put(["new1", "new2"], "p", constants)


@pytest.mark.parametrize("count", [-1, 2.5, "3", True])
def test_a_count_that_is_none_is_refused(client: TransferQueueClient, count: Any) -> None:
    with pytest.raises(ValueError, match="count must be an int"):
        client.wait("p", fields="x", count=count, timeout=0)


@pytest.mark.parametrize(
    ("offsets", "lengths"),
    [
        ([0, 10, 25], None),
        ([-5, 10, 15], None),
        ([0, 10, 3_000_000], None),
        ([0, 30, 10], None),
        ([0, 10, 20], [10, 11]),
        ([0, 10, 20], [-1, 10]),
    ],
)
def test_a_jagged_tensor_whose_offsets_leave_its_values_is_refused(
    client: TransferQueueClient, offsets: list[int], lengths: list[int] | None
) -> None:
    forged = torch.nested.nested_tensor_from_jagged(
        torch.arange(20), torch.tensor(offsets), None if lengths is None else torch.tensor(lengths), None, 1, 10
    )
    with pytest.raises((tq.SchemaMismatchError, ValueError), match="'x'"):
        client.put(TensorDict({"x": forged}, [2]), partition_id="jagged")
    assert "jagged" not in client.get_partition_list()
