"""What a partition may hold: the settings, who waits, sheds or fails, and that a refused put leaves nothing."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.quiet import without_service
from tests.support.sessions import embedded
from transferqueue.config import build_config

pytestmark = pytest.mark.timeout(120)


def batch(rows: int, value: int = 1) -> TensorDict:
    return TensorDict({"x": torch.full((rows, 16), value)}, [rows])


def version(rows: int, number: int) -> list[dict[str, int]]:
    return [{"weight_version": number}] * rows


@pytest.fixture(scope="module")
def session() -> Iterator[tq.Session]:
    rules = {
        "rows_*": {"max_unconsumed_rows": 4, "when_exceeded": "raise"},
        "rows_large*": {"max_unconsumed_rows": "100"},
        "lag": {"max_version_lag": 1, "consumers": "train"},
        "bytes": {"max_bytes": "8KiB"},
    }
    with embedded(**{"limits.partitions": rules, "put.timeout_s": 0.05}) as found, without_service(found):
        yield found


@pytest.fixture
def client(session: tq.Session) -> Iterator[tq.TransferQueueClient]:
    yield session.client
    session.client._store.check()
    for partition in session.client.get_partition_list():
        session.client.clear_partition(partition)


def soon(call: Callable[..., Any], *arguments: Any, **named: Any) -> threading.Thread:
    def run() -> None:
        time.sleep(0.1)
        call(*arguments, **named)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


# -- settings --------------------------------------------------------------------------------------------------------


def test_the_most_specific_rule_counts_setting_by_setting(client: tq.TransferQueueClient) -> None:
    assert client.get_limits("elsewhere").held() == {}
    small, large = client.get_limits("rows_1"), client.get_limits("rows_large_1")
    assert (small.max_unconsumed_rows, small.when_exceeded) == (4, "raise")
    assert (large.max_unconsumed_rows, large.when_exceeded) == (100, "raise")
    client.set_limits("rows_1", max_unconsumed_rows=None)
    assert client.get_limits("rows_1").max_unconsumed_rows is None
    client.put(batch(9), partition_id="rows_1")
    client.set_limits("rows_1", max_unconsumed_rows=4, max_bytes="1MiB", consumers=["a", "b", "a"])
    found = client.get_limits("rows_1")
    assert (found.unconsumed_rows, found.max_bytes, found.consumers) == (9, 1 << 20, ("a", "b"))
    assert client.stats("rows_1").limits == {"rows_1": found}
    assert client.stats("rows_1").limits["rows_1"].describe().startswith("max_bytes ")
    with pytest.raises(tq.LimitExceededError, match="until 'a', 'b' all consumed it"):
        client.put(batch(1), partition_id="rows_1")
    client.set_limits("rows_1", max_unconsumed_rows=10, max_bytes=None, consumers=())


def test_limits_are_seen_by_puts_that_know_of_none(client: tq.TransferQueueClient) -> None:
    client.put(batch(2), partition_id="free")
    client.set_limits("fre*", max_unconsumed_rows=2, when_exceeded="raise")
    with pytest.raises(tq.LimitExceededError):
        client.put(batch(1), partition_id="free")
    client.set_limits("fre*", max_unconsumed_rows=None)
    client.put(batch(1), partition_id="free")


def test_a_rule_that_is_removed_leaves_the_less_specific_ones(client: tq.TransferQueueClient) -> None:
    rules = client._store.limit_rules()
    client.set_limits("rows_9", max_unconsumed_rows=None, when_exceeded="wait")
    client.put(batch(9), partition_id="rows_9")
    client.set_limits("rows_9", remove=True)
    assert client._store.limit_rules() == rules
    found = client.get_limits("rows_9")
    assert (found.max_unconsumed_rows, found.when_exceeded, found.unconsumed_rows) == (4, "raise", 9)
    with pytest.raises(tq.LimitExceededError):
        client.put(batch(1), partition_id="rows_9")
    client.set_limits("rows_9", remove=True)  # there is none
    with pytest.raises(ValueError, match="max_bytes came with it"):
        client.set_limits("rows_*", remove=True, max_bytes=1)
    # A partition of which no rule says anything any more counts nothing.
    client.set_limits("free_9", max_unconsumed_rows=1)
    client.put(batch(1), partition_id="free_9")
    client.set_limits("free_9", remove=True)
    client.put(batch(9), partition_id="free_9")
    assert client.get_limits("free_9").held() == {}
    client._store.check()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"max_bytes": "many"}, "max_bytes"),
        ({"max_unconsumed_rows": -1}, "max_unconsumed_rows"),
        ({"max_version_lag": True}, "max_version_lag"),
        ({"when_exceeded": "sleep"}, "when_exceeded"),
        ({"consumers": [1]}, "consumers"),
        ({"rows": 3}, "rows"),
    ],
)
def test_bad_settings_are_refused_by_name(session: tq.Session, wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        build_config({"limits.partitions": {"train*": wrong}})
    if named != "rows":
        with pytest.raises(ValueError, match=named):
            session.client.set_limits("p", **wrong)


def test_keys_of_the_session_are_rules_too() -> None:
    config = build_config({"limits.max_bytes": "1MiB", "limits.partitions": '{"a*": {"consumers": "x, y"}}'})
    assert config.limits.rules() == {"*": {"max_bytes": 1 << 20}, "a*": {"consumers": ("x", "y")}}
    assert build_config({}).limits.rules() == {}


# -- raise: every way to put, all or nothing -------------------------------------------------------------------------

PUTS: dict[str, Callable[[tq.TransferQueueClient, str, int], Any]] = {
    "put": lambda client, name, rows: client.put(batch(rows), partition_id=name),
    "kv_batch_put": lambda client, name, rows: client.kv_batch_put([f"k{i}" for i in range(rows)], name, batch(rows)),
    "tags": lambda client, name, rows: client.kv_batch_put([f"k{i}" for i in range(rows)], name, tags=version(rows, 1)),
    "insert": lambda client, name, rows: client.get_meta("x", rows, name, mode="insert"),
    "keys": lambda client, name, rows: client.kv_retrieve_meta([f"k{i}" for i in range(rows)], name, create=True),
    "alloc": lambda client, name, rows: client.alloc({"x": ((4,), torch.int64)}, partition_id=name, batch_size=rows),
}


@pytest.mark.parametrize("put", PUTS.values(), ids=PUTS.keys())
def test_a_refused_put_leaves_nothing_not_even_its_partition(
    client: tq.TransferQueueClient, put: Callable[[tq.TransferQueueClient, str, int], Any]
) -> None:
    with pytest.raises(tq.LimitExceededError) as caught:
        put(client, "rows_2", 5)
    error = caught.value
    assert isinstance(error, queue.Full)
    assert (error.limit, error.cap, error.there, error.wanted) == ("max_unconsumed_rows", 4, 0, 5)
    assert error.never
    assert "rows_2" not in client.get_partition_list()
    assert client.stats().pending_bytes == 0
    made = put(client, "rows_2", 4)
    if isinstance(made, tq.Allocation):
        made.commit()
    with pytest.raises(tq.LimitExceededError) as caught:
        client.kv_batch_put(["new"], "rows_2", batch(1))
    assert not caught.value.never
    assert client.stats("rows_2").rows["total"] == 4
    assert client.get_limits("rows_2").unconsumed_rows == 4


def test_rows_that_are_there_are_filled_and_overwritten_at_the_limit(client: tq.TransferQueueClient) -> None:
    meta = client.get_meta("x", 4, "rows_3", mode="insert")
    client.put(batch(4), metadata=meta)
    client.put(batch(4, 2), metadata=meta)
    client.kv_clear("none", "rows_3")
    assert client.get_data(meta)["x"].unique().tolist() == [2]


def test_a_commit_is_held_against_the_limit_again(client: tq.TransferQueueClient) -> None:
    allocation = client.alloc({"x": ((4,), torch.int64)}, partition_id="rows_4", batch_size=3)
    client.put(batch(3), partition_id="rows_4")
    with pytest.raises(tq.LimitExceededError):
        allocation.commit()
    assert client.stats("rows_4").rows["total"] == 3
    client._store.reclaim()
    assert client.stats().pending_bytes == 0


@pytest.mark.parametrize("consumers", [(), ("train",), ("train", "critic")])
def test_what_makes_room_depends_on_the_consumers(client: tq.TransferQueueClient, consumers: tuple[str, ...]) -> None:
    client.set_limits("rows_5", consumers=consumers)
    client.put(batch(4), partition_id="rows_5")
    client.get_meta("x", 2, "rows_5", task_name="critic")
    assert client.get_limits("rows_5").unconsumed_rows == (2 if not consumers else 4)
    client.get_meta("x", 3, "rows_5", task_name="train")
    left = {(): 1, ("train",): 1, ("train", "critic"): 2}[consumers]
    assert client.get_limits("rows_5").unconsumed_rows == left
    client.reset_consumption("rows_5")
    assert client.get_limits("rows_5").unconsumed_rows == 4
    client.set_limits("rows_5", consumers=())


# -- wait ------------------------------------------------------------------------------------------------------------


def release_by_clear(client: tq.TransferQueueClient, meta: tq.BatchMeta) -> None:
    client.clear_samples(meta)


def release_by_fetch(client: tq.TransferQueueClient, meta: tq.BatchMeta) -> None:
    client.get_meta("x", 4, "rows_6", task_name="train")


def release_by_ack(client: tq.TransferQueueClient, meta: tq.BatchMeta) -> None:
    claim = client.claim("train", "rows_6", fields="x", batch_size=4, lease_s=30.0)
    assert client.get_limits("rows_6").unconsumed_rows == 4
    client.ack(claim)


def release_by_setting(client: tq.TransferQueueClient, meta: tq.BatchMeta) -> None:
    client.set_limits("rows_6", max_unconsumed_rows=8)


@pytest.mark.parametrize(
    "release", [release_by_clear, release_by_fetch, release_by_ack, release_by_setting], ids=lambda each: each.__name__
)
@pytest.mark.parametrize("on_loop", [False, True])
def test_a_put_waits_and_is_woken(client: tq.TransferQueueClient, release: Any, on_loop: bool) -> None:
    client.set_limits("rows_6", max_unconsumed_rows=4, when_exceeded="wait")
    before = client._store.counts()["limit_waits"]
    meta = client.put(batch(4), partition_id="rows_6")
    with pytest.raises(tq.LimitTimeoutError, match=r"waited .*max_unconsumed_rows = 4") as caught:
        client.put(batch(1), partition_id="rows_6", timeout=0.01)
    assert isinstance(caught.value, tq.TransferTimeoutError)
    assert (caught.value.timeout_s, caught.value.cap) == (0.01, 4)
    assert client.stats().pending_bytes == 0
    releasing = soon(release, client, meta)
    if on_loop:
        made = asyncio.run(client.async_put(batch(4, 2), partition_id="rows_6", timeout=30.0))
    else:
        made = client.put(batch(4, 2), partition_id="rows_6", timeout=30.0)
    releasing.join()
    assert client.get_data(made)["x"].unique().tolist() == [2]
    assert client._store.counts()["limit_waits"] == before + 2
    client.set_limits("rows_6", max_unconsumed_rows=4, when_exceeded="raise")


def test_bytes_with_both_figures_and_overwrites_that_free_what_they_take(client: tq.TransferQueueClient) -> None:
    with pytest.raises(tq.LimitExceededError, match=r"max_bytes = 8192.*add 12800.*never fit") as caught:
        client.put(batch(100), partition_id="bytes", timeout=30.0)
    assert caught.value.never
    meta = client.put(batch(48), partition_id="bytes")
    assert client.get_limits("bytes").live_bytes == 48 * 128
    client.put(batch(48, 2), metadata=meta)
    with pytest.raises(tq.LimitTimeoutError):
        client.put(batch(17), partition_id="bytes")
    client.put(batch(16), partition_id="bytes")
    assert client.get_limits("bytes").live_bytes == 8192


def test_field_case_76_fast_producer_slow_consumer(client: tq.TransferQueueClient) -> None:
    """Rows not yet consumed never number more than the limit, and the weights that made them are never more than one
    version behind those of the newest."""
    client.set_limits("lag", max_unconsumed_rows=6, when_exceeded="wait")
    made, consumed, most, furthest = 12, [], 0, 0

    def produce() -> None:
        for step in range(made):
            client.put(batch(2, step), partition_id="lag", tags=version(2, step // 2), timeout=30.0)

    producer = threading.Thread(target=produce)
    producer.start()
    while len(consumed) < 2 * made:
        claim = client.claim("train", "lag", fields="x", batch_size=2, lease_s=30.0, timeout=30.0)
        held = client.get_limits("lag")
        most = max(most, held.unconsumed_rows or 0)
        furthest = max(furthest, (held.newest_version or 0) - (held.oldest_version or 0))
        consumed += client.get_data(claim.meta)["x"][:, 0].tolist()
        time.sleep(0.01)
        client.ack(claim)
        client.clear_samples(claim.meta)
    producer.join()
    assert consumed == [step for step in range(made) for _ in range(2)]
    assert (most, furthest) == (6, 1)
    client.set_limits("lag", max_unconsumed_rows=None)


# -- versions --------------------------------------------------------------------------------------------------------


def test_rows_too_old_never_fit_and_newer_ones_wait_for_the_old(client: tq.TransferQueueClient) -> None:
    client.kv_batch_put(["a", "b"], "lag", batch(2), version(2, 3))
    client.kv_put("free", "lag", {"x": torch.zeros(16)}, None)  # no version, no age
    with pytest.raises(tq.LimitExceededError, match=r"too old.*newest weight_version is 3") as caught:
        client.kv_batch_put(["c"], "lag", batch(1), version(1, 1), timeout=30.0)
    assert caught.value.never
    client.kv_batch_put(["c"], "lag", batch(1), version(1, 2))
    with pytest.raises(tq.LimitTimeoutError, match=r"would be 4 while rows of version 2"):
        client.kv_batch_put(["d"], "lag", batch(1), version(1, 4))
    client.get_meta("x", 4, "lag", task_name="critic")  # no consumer that counts
    with pytest.raises(tq.LimitTimeoutError):
        client.kv_batch_put(["d"], "lag", batch(1), version(1, 4))
    client.kv_clear("c", "lag")
    client.kv_batch_put(["d"], "lag", batch(1), version(1, 4))
    assert set(client.kv_list("lag")["lag"]) == {"a", "b", "free", "d"}


def test_the_trainer_may_say_its_version(client: tq.TransferQueueClient) -> None:
    client.put(batch(2), partition_id="lag", tags=version(2, 1))
    client.set_weight_version("lag", 5)
    with pytest.raises(tq.LimitExceededError, match="newest weight_version is 5"):
        client.put(batch(1), partition_id="lag", tags=version(1, 3))
    client.set_weight_version("lag", 2)
    client.put(batch(1), partition_id="lag", tags=version(1, 2))
    client.set_weight_version("elsewhere", 7)  # nothing to compare with
    with pytest.raises(TypeError):
        client.set_weight_version("lag", True)
    with pytest.raises(ValueError, match="2\\*\\*62"):
        client.set_weight_version("lag", -1)


@pytest.mark.parametrize("wrong", [1.5, "3", -1, 1 << 63])
def test_a_version_that_is_no_number_is_refused(client: tq.TransferQueueClient, wrong: Any) -> None:
    with pytest.raises(ValueError, match="weight_version of a row is no int"):
        client.put(batch(1), partition_id="lag", tags=[{"weight_version": wrong}])
    client.put(batch(1), partition_id="elsewhere", tags=[{"weight_version": wrong}])
    assert "lag" not in client.get_partition_list()


def test_tags_changed_later_count(client: tq.TransferQueueClient) -> None:
    meta = client.put(batch(2), partition_id="lag", tags=version(2, 1))
    meta.custom_meta = version(2, 9)
    client.set_custom_meta(meta)
    held = client.get_limits("lag")
    assert (held.newest_version, held.oldest_version) == (9, 9)
    with pytest.raises(tq.LimitExceededError, match="too old"):
        client.put(batch(1), partition_id="lag", tags=version(1, 7))


# -- shed ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def shedding(client: tq.TransferQueueClient) -> tq.TransferQueueClient:
    client.set_limits("rows_7", when_exceeded="shed")
    return client


def test_the_oldest_rows_that_nobody_was_given_make_room(shedding: tq.TransferQueueClient) -> None:
    client = shedding
    client.set_limits("rows_7", consumers=("train",))
    first = client.kv_batch_put(["a", "b", "c", "d"], "rows_7", batch(4))
    assert first.shed_rows == 0
    view = client.kv_batch_get("c", "rows_7")["x"]
    client.get_meta("x", 1, "rows_7", task_name="critic")  # "a": given to somebody, though it still counts
    claim = client.claim("train", "rows_7", fields="x", batch_size=2, lease_s=30.0)  # "a" and "b"
    made = client.kv_batch_put(["e"], "rows_7", batch(1, 5))
    assert (made.shed_rows, list(client.kv_list("rows_7")["rows_7"])) == (1, ["a", "b", "d", "e"])
    assert view.unique().tolist() == [1]  # a view outlives its row
    assert client.put(batch(1), partition_id="rows_7").shed_rows == 1
    with pytest.raises(tq.LimitExceededError):  # "a", "b" are given: of the rest too few can go
        client.kv_batch_put(["f", "g", "h"], "rows_7", batch(3))
    assert list(client.kv_list("rows_7")["rows_7"]) == ["a", "b", "e"]
    assert client.get_data(claim.meta)["x"].shape == (2, 16)
    client.nack(claim)
    assert client.kv_batch_put(["f", "g", "h"], "rows_7", batch(3)).shed_rows == 3
    assert client.get_limits("rows_7").shed_rows == 5
    assert client.stats("rows_7").limits["rows_7"].shed_rows == 5
    client.set_limits("rows_7", consumers=())


def test_a_put_does_not_shed_its_own_rows(shedding: tq.TransferQueueClient) -> None:
    keys = ["a", "b", "c", "d"]
    shedding.kv_batch_put(keys, "rows_7", batch(4))
    assert shedding.kv_batch_put(["a", "new"], "rows_7", batch(2, 2)).shed_rows == 1
    assert list(shedding.kv_list("rows_7")["rows_7"]) == ["a", "c", "d", "new"]
    with pytest.raises(tq.LimitExceededError, match="never fit"):
        shedding.put(batch(5), partition_id="rows_7")


def test_stale_rows_go_and_a_stale_put_is_dropped(client: tq.TransferQueueClient) -> None:
    client.set_limits("lag", when_exceeded="shed")
    before = client._store.counts()["shed_rows"]
    client.kv_batch_put(["a", "b"], "lag", batch(2), version(2, 1))
    client.kv_batch_put(["c"], "lag", batch(1), version(1, 2))
    assert client.kv_batch_put(["d"], "lag", batch(1), version(1, 3)).shed_rows == 2
    assert list(client.kv_list("lag")["lag"]) == ["c", "d"]
    dropped = client.kv_batch_put(["e", "f"], "lag", batch(2), version(2, 1))
    assert (dropped.keys, dropped.tags, dropped.shed_rows) == ([], [], 2)
    dropped_rows = client.put(batch(3), partition_id="lag", tags=version(3, 0))
    assert (dropped_rows.size, dropped_rows.shed_rows) == (0, 3)
    with pytest.raises(tq.LimitExceededError):  # whoever holds "c" would take it for written
        client.kv_batch_put(["c", "g"], "lag", batch(2), version(2, 1))
    assert client._store.counts()["shed_rows"] == before + 2 + 2 + 3
    client.set_limits("lag", when_exceeded="wait")


def test_bytes_are_shed_row_by_row_and_more_than_one_transaction_holds(client: tq.TransferQueueClient) -> None:
    client.set_limits("many", max_bytes="1MiB", when_exceeded="shed")
    rows = 4096
    client.kv_batch_put([f"k{i}" for i in range(rows)], "many", batch(rows))
    client.kv_batch_put([f"l{i}" for i in range(rows)], "many", batch(rows, 2))
    made = client.put(TensorDict({"y": torch.full((2, 1 << 16), 3.0)}, [2]), partition_id="many")
    held = client.get_limits("many")
    assert held.live_bytes <= 1 << 20
    assert made.shed_rows == held.shed_rows == 4096
    assert client.get_data(made)["y"].unique().tolist() == [3.0]


# -- what is exempt --------------------------------------------------------------------------------------------------


def test_coalescing_moves_rows_at_the_limit(client: tq.TransferQueueClient) -> None:
    metas = [client.put(batch(1, i), partition_id="rows_8") for i in range(4)]
    moved = client.coalesce(tq.BatchMeta.concat(metas))
    assert client.get_data(moved)["x"][:, 0].tolist() == [0, 1, 2, 3]
    assert client.get_limits("rows_8").unconsumed_rows == 4
