"""Sizes of a new session, and the checks before anything is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from transferqueue.config import build_config
from transferqueue.errors import StorageFullError
from transferqueue.storage import creation

MIB, GIB = 1 << 20, 1 << 30


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """directory -> (free, total) bytes, in place of the machine's."""
    sizes = {"/dev/shm": (8 * GIB, 8 * GIB)}
    monkeypatch.setattr(creation, "free_bytes", lambda directory: sizes[directory])
    return sizes


@pytest.mark.parametrize(
    ("size", "shm", "index"),
    [
        (MIB, 8 * GIB, 16 * MIB),
        (GIB, 8 * GIB, 64 * MIB),
        (64 * GIB, 128 * GIB, 256 * MIB),
        (GIB, 64 * MIB, 16 * MIB),  # payload elsewhere: the index must still fit
    ],
)
def test_the_index_grows_with_the_store_and_fits_the_machine(
    machine: dict[str, tuple[int, int]], size: int, shm: int, index: int
) -> None:
    machine["/dev/shm"] = (shm, shm)
    assert creation.index_bytes(build_config({"storage.size": size})) == index


def test_a_chosen_index_size_is_taken(machine: dict[str, tuple[int, int]]) -> None:
    assert creation.index_bytes(build_config({"storage.index_size": "48MiB"})) == 48 * MIB


def test_the_store_grows_in_large_steps() -> None:
    assert creation.step_bytes(build_config({"storage.size": MIB})) == MIB
    assert creation.step_bytes(build_config({"storage.size": GIB})) == 64 * MIB


def test_room_is_checked_where_it_is_needed(machine: dict[str, tuple[int, int]], tmp_path: Path) -> None:
    creation.check_room(build_config({"storage.size": "7GiB"}))
    with pytest.raises(StorageFullError, match=r"7\.9 GiB.*8\.0 GiB free") as caught:
        creation.check_room(build_config({"storage.size": 8 * GIB - 100 * MIB}))
    assert caught.value.free_bytes == 8 * GIB
    machine["/dev/shm"] = (40 * MIB, 64 * MIB)
    machine[str(tmp_path)] = (2 * GIB, 4 * GIB)
    creation.check_room(build_config({"storage.size": "1GiB", "storage.dir": str(tmp_path)}))
    with pytest.raises(StorageFullError, match=str(tmp_path)):
        creation.check_room(build_config({"storage.size": "3GiB", "storage.dir": str(tmp_path)}))


@pytest.mark.parametrize(("mode", "warnings"), [("0", 0), ("1", 0), ("2", 1)])
def test_strict_overcommit_is_said(
    mode: str, warnings: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setting = tmp_path / "overcommit_memory"
    setting.write_text(mode + "\n")
    real_open = open
    monkeypatch.setattr("builtins.open", lambda *arguments, **options: real_open(setting, **options))
    creation.warn_about_overcommit()
    monkeypatch.undo()
    assert len([record for record in caplog.records if "vm.overcommit_memory" in record.getMessage()]) == warnings


def test_the_description_holds_what_joiners_need_and_not_what_is_theirs_to_choose() -> None:
    description = creation.describe("name", build_config({"storage.size": "8MiB", "read.mode": "copy"}))
    assert description.config["storage.size"] == 8 * MIB
    assert "read.mode" not in description.config
    assert description.sampler == {"name": "SequentialSampler"}
