"""Whatever another version wrote is refused, and the error names both versions."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch

import transferqueue as tq
from tests.support.sessions import Forked, embedded
from transferqueue import _native
from transferqueue.checkpoint import manifest as manifests
from transferqueue.codec import schema as forms
from transferqueue.metadata import BatchMeta, KVBatchMeta, batch_wire, kv_wire, wire
from transferqueue.storage.names import SessionPaths
from transferqueue.storage.session_dir import FORMAT_VERSION
from transferqueue.workers.frames import FRAME_VERSION, CallWriter, read_answer, read_call

pytestmark = pytest.mark.timeout(120)

OTHER = 99
META = BatchMeta(np.arange(4), "p", {"x": {"dtype": "float32", "shape": (2,)}}, np.ones(4))
KEYED = KVBatchMeta(keys=["a"], tags=[{}], partition_id="p")


def refused(read: Callable[[], object], ours: object, found: object = OTHER) -> None:
    with pytest.raises(tq.LayoutMismatchError) as caught:
        read()
    assert (caught.value.expected, caught.value.found) == (ours, found)
    assert str(found) in str(caught.value)
    assert str(ours) in str(caught.value)


def test_metadata() -> None:
    other = bytes([OTHER])
    refused(lambda: batch_wire.decode(BatchMeta, other + batch_wire.encode(META)[0][1:]), wire.WIRE_VERSION)
    refused(lambda: kv_wire.decode(KVBatchMeta, other + KEYED.__reduce__()[1][0][1:]), wire.WIRE_VERSION)


def test_frames() -> None:
    frame = CallWriter("step").frame([META], {})
    assert frame is not None
    assert read_call(frame)[0] == "step"
    refused(lambda: read_call(bytes([OTHER]) + frame[1:]), FRAME_VERSION)
    answer = bytes([1, OTHER]) + batch_wire.encode(META)[0][1:]
    refused(lambda: read_answer(answer), wire.WIRE_VERSION)


def test_schemas() -> None:
    raw = forms.schema_bytes(forms.DENSE, "float32", (2,))
    assert forms.read_schema(raw).version == forms.VERSION
    refused(lambda: forms.read_schema(raw[:1] + bytes([OTHER]) + raw[2:]), forms.VERSION)


def test_checkpoints() -> None:
    plain = {"format": manifests.FORMAT, "format_version": OTHER, "library_version": "9.9"}
    refused(
        lambda: manifests.parse_manifest(json.dumps(plain).encode(), "metadata.json", manifests.FILES),
        manifests.FORMAT_VERSION,
    )


def joined(connection: Connection) -> None:
    """Joins the session it is told of, asks who else is there, and says how that ended."""
    name = connection.recv()
    try:
        session = tq.attach(name)
        session.client.kv_list()
        session.client.stats()
        connection.send(("joined", ""))
    except tq.TransferQueueError as error:
        connection.send((type(error).__name__, str(error)))


@contextmanager
def patched(path: Path, places: list[int], value: bytes) -> Iterator[None]:
    with path.open("r+b", buffering=0) as file:
        original = [os.pread(file.fileno(), len(value), at) for at in places]
        for at in places:
            os.pwrite(file.fileno(), value, at)
        try:
            yield
        finally:
            for at, before in zip(places, original, strict=True):
                os.pwrite(file.fileno(), before, at)


def test_files_of_a_session() -> None:
    version, fingerprint = OTHER.to_bytes(4, "little"), b"\x01\x23\x45\x67\x89\xab\xcd\xef"
    ours = str(_native.LAYOUT_VERSION)
    joiners = [Forked(joined) for _ in range(8)]
    with embedded() as session:
        tq.kv_put("k", "p", {"x": torch.arange(3)})
        paths = SessionPaths.of(session.name)
        folder = Path(paths.directory)
        control, table, payload = (Path("/dev/shm" + paths.segment(ending)) for ending in (".ctl", ".tbl", ".dat"))
        (lease,) = (folder / "leases").glob("*.lease")
        index = folder / "index" / "data.mdb"
        # LMDB writes changed pages anew: the record stands in old ones, too.
        formats = [found.end() for found in re.finditer(b"TSTQIDX1", index.read_bytes())]
        description = folder / "session.json"
        text = description.read_text()
        at = text.index(f'"format": {FORMAT_VERSION}') + len('"format": ')
        index_format = index.read_bytes()[formats[0]]
        both = [f"0x{int.from_bytes(fingerprint, 'little'):016x}", f"0x{_native.BUILD_FINGERPRINT:016x}"]
        cases = [
            (control, [8], version, ["99", ours]),
            (table, [8], version, ["99", ours]),
            (payload, [8], version, ["99", ours]),
            (lease, [8], version, ["99", ours]),
            (control, [16], fingerprint, both),
            (index, formats, version, ["99", str(index_format)]),
            (index, [16 + 4], version, ["99", "1"]),
            (description, [at], b"9", ["9", str(FORMAT_VERSION)]),
        ]
        for joiner, (path, places, value, says) in zip(joiners, cases, strict=True):
            with patched(path, places, value):
                joiner.say(session.name)
                kind, message = joiner.hear()
                assert joiner.join() == 0
            assert kind == "LayoutMismatchError", (path, places[0], kind, message)
            for part in says:
                assert re.search(rf"\b{part}\b", message), (path, part, message)
        assert tq.kv_list() == {"p": {"k": {}}}
