"""Rows and fields saved apart, and loaded in either order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.sessions import embedded
from tests.support.versioned_rows import rows, versions_of
from transferqueue import BatchMeta, TransferQueueClient

pytestmark = pytest.mark.timeout(120)


def fill(client: TransferQueueClient) -> BatchMeta:
    client.kv_batch_put(["a", "b", "c"], "keyed", rows([1, 2, 3], 1), tags=[{"n": n} for n in range(3)])
    client.kv_batch_put(["b"], "keyed", rows([2], 2))
    client.kv_clear(["c"], "keyed")
    plain = client.put(rows(range(50, 70), 1), partition_id="plain")
    client.get_meta(["x"], 5, "plain", task_name="t")
    client.clear_samples(plain.select_samples([7]))
    return plain


def check(client: TransferQueueClient, plain: BatchMeta) -> None:
    assert client.kv_list("keyed") == {"keyed": {"a": {"n": 0}, "b": {"n": 1}}}
    assert versions_of(client.kv_batch_get(["a", "b"], "keyed", mode="copy")) == [(1, 1), (2, 2)]
    left = plain.select_samples([at for at in range(20) if at != 7])
    assert versions_of(client.get_data(left, mode="copy")) == [(n, 1) for n in range(50, 70) if n != 57]
    assert client.get_consumption_status("t", "plain")[1].tolist() == [1] * 5 + [0] * 14  # type: ignore[union-attr]


@pytest.mark.parametrize("order", ["rows first", "fields first", "rows, fields, rows"])
def test_both_halves_in_any_order(tmp_path: Path, order: str) -> None:
    with embedded() as session:
        plain = fill(session.client)
        session.client.save_controller_checkpoint(str(tmp_path / "rows"))
        session.client.save_storage_checkpoint(tmp_path / "fields")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["fields", "rows"]
    with embedded() as session:
        client = session.client
        client.put(rows([4], 4), partition_id="before")
        steps: dict[str, Callable[[], None]] = {
            "rows": lambda: client.load_controller_checkpoint(tmp_path / "rows"),
            "fields": lambda: client.load_storage_checkpoint(tmp_path / "fields"),
        }
        for name in {"rows first": "rows fields", "fields first": "fields rows"}.get(order, "rows fields rows").split():
            steps[name]()
        assert set(client.get_partition_list()) == {"keyed", "plain"}
        check(client, plain)
        assert client.stats().pending_bytes == client.stats().leased_bytes == 0


def test_rows_alone_are_rows_without_fields(tmp_path: Path) -> None:
    with embedded() as session:
        fill(session.client)
        session.client.save_controller_checkpoint(tmp_path / "rows")
    with embedded() as session:
        client = session.client
        client.load_controller_checkpoint(tmp_path / "rows")
        assert client.kv_list("keyed") == {"keyed": {"a": {"n": 0}, "b": {"n": 1}}}
        assert client.get_meta(["x"], 0, "plain", mode="force_fetch").size == 19
        assert not client.check_production_status(["x"], "plain")


def test_rows_of_another_moment_keep_what_they_have(tmp_path: Path) -> None:
    """Some rows are in the file and not in the session, some the other way round."""
    with embedded() as session:
        client = session.client
        meta = client.put(TensorDict({"x": torch.arange(10)}, [10]), partition_id="p")
        client.put(TensorDict({"y": torch.arange(5)}, [5]), metadata=meta.select_samples(list(range(3, 8))))
        client.save_controller_checkpoint(tmp_path / "rows")
        client.clear_samples(meta.select_samples([0, 4, 9]))
        later = client.put(TensorDict({"x": torch.arange(2)}, [2]), partition_id="p")
        client.load_controller_checkpoint(tmp_path / "rows")
        _, status = client.get_production_status(["x", "y"], "p")
        has_x, has_y = [0, 1, 1, 1, 0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 0, 1, 1, 1, 0, 0]
        assert status is not None
        assert status.tolist() == [list(pair) for pair in zip(has_x, has_y, strict=True)]
        assert client.get_data(meta.select_samples([1, 2, 3, 5]), fields=["x"])["x"].tolist() == [1, 2, 3, 5]
        assert client.get_data(meta.select_samples([3, 5, 7]), fields=["y"])["y"].tolist() == [0, 2, 4]
        with pytest.raises(tq.StaleMetadataError):
            client.get_data(later)


def test_a_damaged_file_is_named_and_changes_nothing(tmp_path: Path) -> None:
    with embedded() as session:
        client = session.client
        plain = fill(client)
        path = tmp_path / "rows"
        client.save_controller_checkpoint(path)
        whole = path.read_bytes()
        for position in range(0, len(whole), 97):
            path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
            # Some bytes of the zip's own tables are read by nobody.
            with contextlib.suppress(tq.CorruptSegmentError, tq.LayoutMismatchError):
                client.load_controller_checkpoint(path)
            check(client, plain)
        for kept in (0, 100, len(whole) - 1):
            path.write_bytes(whole[:kept])
            with pytest.raises(tq.CorruptSegmentError, match="rows"):
                client.load_controller_checkpoint(path)
        with pytest.raises(FileNotFoundError):
            client.load_controller_checkpoint(tmp_path / "nowhere")
        check(client, plain)
