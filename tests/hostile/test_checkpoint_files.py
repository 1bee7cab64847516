"""Files that have the right checksums and say nonsense: a writer with bad intent, or with a bug."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
import xxhash
from pyarrow import compute

import transferqueue as tq
from tests.support.sessions import embedded
from tests.support.versioned_rows import rows, versions_of
from transferqueue import TransferQueueClient
from transferqueue.tag_maps import encode_tags

pytestmark = pytest.mark.timeout(120)
Change = Callable[[pa.Table], pa.Table]


@pytest.fixture(scope="module")
def client() -> Iterator[TransferQueueClient]:
    with embedded() as session:
        yield session.client


@pytest.fixture(scope="module")
def saved(client: TransferQueueClient, tmp_path_factory: pytest.TempPathFactory) -> Path:
    client.kv_batch_put(["a", "b", "c"], "keyed", rows([1, 2, 3], 1), tags=[{"n": 1}] * 3)
    client.put(rows(range(8), 1), partition_id="plain")
    client.get_meta(["x"], 3, "plain", task_name="t")
    directory: Path = tmp_path_factory.mktemp("hostile") / "c"
    client.save_checkpoint(directory)
    for partition in client.get_partition_list():
        client.clear_partition(partition)
    client.kv_batch_put(["live"], "live", rows([9], 2))
    return directory


def rewritten(directory: Path, name: str, change: Change) -> None:
    """The table changed and the manifest signed anew."""
    path = directory / f"{name}.arrow"
    with pa.OSFile(str(path), "rb") as source:
        table = pa.ipc.open_file(source).read_all()
    changed = change(table)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, changed.schema) as writer:
        writer.write_table(changed)
    manifest = json.loads((directory / "metadata.json").read_text())
    raw = path.read_bytes()
    manifest["files"][path.name] = {"nbytes": len(raw), "xxh3_128": xxhash.xxh3_128(raw).hexdigest()}
    sign(directory, manifest)


def sign(directory: Path, manifest: dict[str, Any]) -> None:
    manifest.pop("checksum", None)
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    manifest["checksum"] = xxhash.xxh3_128(canonical.encode()).hexdigest()
    (directory / "metadata.json").write_text(json.dumps(manifest))


def column(name: str, change: Callable[[list[Any]], list[Any]]) -> Change:
    def changed(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        kind = table.schema.field(at).type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        return table.set_column(at, name, pa.array(change(table[name].to_pylist()), kind))

    return changed


def first(value: Any) -> Callable[[list[Any]], list[Any]]:
    return lambda values: [value, *values[1:]]


TAGS = encode_tags({"n": 1})  # number of tags | length of the name | name | length of the value | value
CHANGES: dict[str, tuple[str, Change]] = {
    "no column": ("runs", lambda table: table.drop_columns(["cells"])),
    "another type": (
        "runs",
        lambda table: table.set_column(0, "partition", compute.cast(table["partition"], pa.int32())),
    ),
    "a null": ("blocks", column("rows", first(None))),
    "another table": ("runs", lambda table: pa.table({"x": [1]})),
    "rows that overlap": ("runs", column("first_row", lambda values: [0] * len(values))),
    "negative rows": ("runs", column("rows", first(-1))),
    "rows beyond the index": ("runs", column("first_row", first(1 << 61))),
    "a block of no bytes": ("blocks", column("nbytes", first(0))),
    "a block of negative bytes": ("blocks", column("nbytes", first(-64))),
    "more fields than there are": ("blocks", column("fields", first(1 << 40))),
    "a block of no partition": ("blocks", column("partition", first(77))),
    "fields outside": ("fields", column("data_offset", first(1 << 50))),
    "an unknown kind": ("fields", column("kind", first(9))),
    "offsets outside": ("fields", column("offsets_offset", lambda values: [1 << 40] * len(values))),
    "cells of no block": ("cells", column("block", first(5))),
    "cells beyond their block": ("cells", column("block_row", first(1 << 40))),
    "fields of no block": ("cells", column("fields", first([99]))),
    "no cells": ("cells", lambda table: table.slice(0, 0)),
    "a key twice": ("rows", column("key", lambda values: ["same"] * len(values))),
    "tags that are none": ("rows", column("tags", first(b"\xff\xff\xff\xff"))),
    "tags of another length": ("rows", column("tags", first(TAGS[:-1]))),
    "more tags": ("rows", column("tags", first(TAGS + b"x"))),
    "tags whose values are none": ("rows", column("tags", first(TAGS[:-1] + b"\xc1"))),
    "a tag twice": ("rows", column("tags", first(b"\2" + TAGS[1:] + TAGS[4:]))),
    "an extension of no kind": ("rows", column("tags", first(TAGS[:9] + b"\3\0\0\0\xd4\7x"))),
    "tags nested too deeply": ("rows", column("tags", first(TAGS[:9] + b"\0\0\1\0" + b"\x91" * 65535 + b"\1"))),
    "dense fields that are ragged": ("fields", column("kind", lambda values: [1] * len(values))),
    "dense fields that are blobs": ("fields", column("kind", lambda values: [2] * len(values))),
    "schemas that are none": ("fields", column("schema", lambda values: [b"\xff"] * len(values))),
    "a NUL in a field": ("fields", column("name", lambda values: [f"{value}\0" for value in values])),
    "a NUL in a partition": ("partitions", column("name", lambda values: [f"{value}\0" for value in values])),
    "a NUL in a known field": ("partitions", column("known_fields", lambda values: [["x\0"]] * len(values))),
    "keys of rows that are not there": ("rows", column("row", lambda values: [value + 4000 for value in values])),
    "consumed rows that are not there": ("tasks", column("consumed_rows", first([1 << 40]))),
    "more consumed rows than fit": (
        "tasks",
        lambda table: column("consumed_rows", first([1 << 60]))(column("consumed_first", first([0]))(table)),
    ),
    "a partition twice": ("partitions", column("name", lambda values: ["p"] * len(values))),
    "a name that is none": ("partitions", column("name", first(""))),
    "fragments of no block": ("payload", column("block", first(1000))),
    "fragments of a negative block": ("payload", column("block", first(-1))),
    "fragments outside": ("payload", column("offset", first(1 << 50))),
    "fragments at negative places": ("payload", column("offset", first(-8))),
    "fragments that are missing": ("payload", lambda table: table.slice(1)),
    "no fragments": ("payload", lambda table: table.slice(0, 0)),
    "longer fragments": ("payload", column("data", first(bytes(1 << 20)))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_nonsense_is_refused_and_changes_nothing(
    client: TransferQueueClient, saved: Path, tmp_path: Path, name: str
) -> None:
    directory = copy(saved, tmp_path)
    rewritten(directory, *CHANGES[name])
    if name == "more consumed rows than fit":
        sign(directory, {**json.loads((directory / "metadata.json").read_text()), "next_row": 1 << 61})
    with pytest.raises((tq.CorruptSegmentError, tq.StorageFullError)):
        client.load_checkpoint(directory)
    assert list(client.kv_list()) == ["live"]
    assert versions_of(client.kv_batch_get(["live"], "live", mode="copy")) == [(9, 2)]
    assert client.stats().pending_bytes == 0


def copy(saved: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "c"
    directory.mkdir(parents=True)
    for path in saved.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    return directory


@pytest.mark.parametrize(
    "change",
    [{"files": {}}, {"next_row": "many"}, {"next_row": -4}, {"payload_nbytes": 1}, {"rows": None}, {"session": 5}],
)
def test_manifests_of_nonsense(
    client: TransferQueueClient, saved: Path, tmp_path: Path, change: dict[str, object]
) -> None:
    directory = copy(saved, tmp_path)
    manifest = json.loads((directory / "metadata.json").read_text())
    sign(directory, {**manifest, **change})
    with pytest.raises(tq.CorruptSegmentError):
        client.load_checkpoint(directory)
    assert list(client.kv_list()) == ["live"]


def test_links_and_pipes_in_the_place_of_files(client: TransferQueueClient, saved: Path, tmp_path: Path) -> None:
    for name in ("runs.arrow", "metadata.json"):
        directory = copy(saved, tmp_path / name)
        path = directory / name
        path.rename(tmp_path / name / "elsewhere")
        for put, kind in (
            (lambda path: path.symlink_to(tmp_path / path.name / "elsewhere"), "a symbolic link"),
            (lambda path: path.symlink_to("nowhere"), "a symbolic link"),
            (os.mkfifo, "a pipe"),
            (lambda path: path.mkdir(), "a directory"),
        ):
            put(path)
            with pytest.raises(tq.CorruptSegmentError, match=kind) as caught:
                client.load_checkpoint(directory)
            assert caught.value.path == str(path)
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def test_the_same_tables_written_by_others_are_fine(client: TransferQueueClient, saved: Path, tmp_path: Path) -> None:
    directory = copy(saved, tmp_path)
    for name in ("partitions", "blocks", "fields", "runs", "cells", "rows", "tasks", "payload"):
        rewritten(directory, name, lambda table: table)
    rewritten(directory, "fields", column("name", lambda values: values))  # without dictionary
    client.load_checkpoint(directory)
    batch = client.kv_batch_get(["a", "b", "c"], "keyed", mode="copy")
    assert versions_of(batch) == [(1, 1), (2, 1), (3, 1)]
    assert torch.equal(batch["x"], rows([1, 2, 3], 1)["x"])
