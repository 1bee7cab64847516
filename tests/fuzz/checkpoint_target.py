"""The Arrow files of a checkpoint, damaged under checksums that are right: refused, or loaded as a whole session."""

from __future__ import annotations

import atexit
import contextlib
import json
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
import torch
from tensordict import NonTensorStack, TensorDict

from tests.fuzz.edits import Input, edited, edits_of
from tests.fuzz.manifest_target import with_checksum
from tests.fuzz.targets import Target
from tests.unit.native.native_session import new_session
from transferqueue import _native
from transferqueue.checkpoint.libraries import new_checksum
from transferqueue.checkpoint.load import load
from transferqueue.checkpoint.manifest import FILES, MANIFEST
from transferqueue.checkpoint.save import save
from transferqueue.codec.encode import plan_put
from transferqueue.errors import CorruptSegmentError, LayoutMismatchError, PickleNotAllowedError, StorageFullError
from transferqueue.tag_maps import encode_tags


def fill(store: _native.Store) -> None:
    """Rows of several forms, with keys and tags, cleared and consumed in part."""
    jagged = torch.nested.nested_tensor([torch.arange(n) for n in (1, 4, 2)], layout=torch.jagged)
    values = NonTensorStack("a", {"b": 1}, [1, 2])
    batch = TensorDict({"x": torch.arange(24.0).view(3, 8), "j": jagged, "v": values}, batch_size=[3])
    for partition, keys in (("train", ["a", "b", "c"]), ("val", ["k", "l", "m"])):
        plan = plan_put(batch, 3)
        reservation = store.reserve(plan.nbytes, 5.0)
        plan.write(reservation)
        tags = [encode_tags({"n": row}) for row in range(3)]
        elsewhere_nbytes = 1_000_001 if partition == "val" else None  # as if it were names of that much on other nodes
        store.publish(
            partition,
            keys=keys,
            reservation=reservation,
            fields=plan.layouts,
            tags=tags,
            elsewhere_nbytes=elsewhere_nbytes,
        )
    store.clear_rows("val", keys=["l"])
    snapshot = store.task_snapshot("train", "learn", ["x"])
    store.task_commit("train", "learn", snapshot.task_version, ["x"], np.array([0, 1]), b"")


class Place:
    """A store with rows, and a directory for what is loaded into it."""

    def __init__(self) -> None:
        self._held = contextlib.ExitStack()
        session = self._held.enter_context(new_session(16 << 20, 16 << 20, 16 << 20))
        self.store = session.attach()
        self._held.callback(self.store.close)
        self.directory = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="tq-fuzz-")))
        atexit.register(self.close)
        fill(self.store)

    def close(self) -> None:
        self._held.close()

    def look(self) -> None:
        """What is there after a load can be used."""
        for partition in self.store.partitions():
            rows = self.store.list_rows(partition).indexes
            assert len(rows) < 1 << 16
            resolved = self.store.resolve(partition, indexes=rows)
            assert resolved.n_rows == len(rows)
            resolved.release()
        self.store.reclaim()


class _Checkpoint(Place):
    def __init__(self) -> None:
        super().__init__()
        self.saved = self.directory / "saved"
        save(self.store, self.saved, session="fuzz", user_metadata={"step": 1})
        self.contents = {name: (self.saved / name).read_bytes() for name in FILES}
        self.manifest = json.loads((self.saved / MANIFEST).read_bytes())


@cache
def place() -> _Checkpoint:
    return _Checkpoint()


def close() -> None:
    place().close()
    place.cache_clear()


def run(data: bytes) -> None:
    given, held = Input(data), place()
    manifest = json.loads(json.dumps(held.manifest))
    changed = {}
    for _ in range(1 + given.number() % 2):
        name = FILES[given.number() % len(FILES)]
        content = held.contents[name]
        for _ in range(1 + given.number() % 3):
            content = edited(content, given)
        changed[name] = content
        checksum = new_checksum()
        checksum.update(content)
        manifest["files"][name] = {"nbytes": len(content), "xxh3_128": checksum.hexdigest()}
    try:
        for name, content in changed.items():
            (held.saved / name).write_bytes(content)
        (held.saved / MANIFEST).write_bytes(with_checksum(manifest))
        load(held.store, held.saved, lambda _: contextlib.nullcontext(), allow_pickle=False)
        held.look()
    except (CorruptSegmentError, LayoutMismatchError, PickleNotAllowedError, StorageFullError):
        pass
    finally:
        for name in changed:
            (held.saved / name).write_bytes(held.contents[name])
        held.store.reclaim()


def target() -> Target:
    seeds = [
        bytes([0, number, count]) + tail
        for number in range(len(FILES))
        for count, tail in enumerate(edits_of(12, seed=number))
    ]
    return Target("checkpoint", run, seeds, close)
