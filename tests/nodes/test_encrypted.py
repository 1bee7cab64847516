"""Nodes whose connections are encrypted do what others do: rows brought ahead, checkpoints, a source that is killed."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.certificates import authority
from tests.support.nodes import Nodes, nodes_of
from tests.support.nursery import Nursery
from tests.unit.transferqueue.nodes.serving import HOST, serving
from transferqueue import cli
from transferqueue.node_service import program
from transferqueue.nodes.pull_block import PullPart
from transferqueue.nodes.tls import TlsFiles

pytest.importorskip("pyarrow.flight")
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="certificates are made with openssl"),
]
MIB = 1 << 20
soak = pytest.mark.soak


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return authority(tmp_path_factory.mktemp("certificates"), "ours")


@pytest.fixture(scope="module")
def keys(ours: TlsFiles) -> dict[str, str]:
    return {"cluster.tls_cert": ours.cert, "cluster.tls_key": ours.key, "cluster.tls_ca": ours.ca}


@pytest.fixture(scope="module")
def encrypted(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory, keys: dict[str, str]) -> Iterator[Nodes]:
    with nodes_of(nursery, tmp_path_factory.mktemp("encrypted"), 2, everywhere=keys) as started:
        yield started


def rows(mebibytes: int) -> TensorDict:
    return TensorDict({"x": torch.arange(mebibytes * MIB // 8).view(4, -1)}, [4])


def _puts(pipe: Connection, part: str, mebibytes: int) -> None:
    """Into partition "p", from a process of that node; says which rows."""
    pipe.send(tq.attach(part).client.put(rows(mebibytes), partition_id="p"))
    tq.close()


@pytest.fixture
def near(encrypted: Nodes) -> Iterator[Any]:
    """A client on the first node, which is the home of "p"."""
    client = tq.attach(encrypted.part(0)).client
    client.place_partition("p")
    yield client
    client.clear_partition("p")
    tq.close()


def test_rows_are_brought_ahead_by_either_node(nursery: Nursery, encrypted: Nodes, near: Any) -> None:
    far = nursery.start(_puts, encrypted.part(1), 2).receive()
    assert near.prefetch(far) == 2 * MIB
    found, report = near.get_data_with_report(far)
    assert torch.equal(found["x"], rows(2)["x"])
    assert report.bytes_pulled == 0
    own = near.put(rows(1), partition_id="p")
    assert near.prefetch(own, node=1) == MIB
    assert near.prefetch(own, node=1) == 0


def test_checkpoints_of_all_nodes(nursery: Nursery, encrypted: Nodes, near: Any, tmp_path: Path) -> None:
    pytest.importorskip("xxhash")
    far = nursery.start(_puts, encrypted.part(1), 1).receive()
    own = near.put(rows(1), partition_id="p")
    near.save_checkpoint(tmp_path / "step", metadata={"step": 7})
    near.clear_samples(far)
    with pytest.raises(tq.StaleMetadataError):
        near.get_data(far)
    assert near.load_checkpoint(tmp_path / "step") == {"step": 7}
    for meta in (far, own):
        assert torch.equal(near.get_data(meta, fields=["x"])["x"], rows(1)["x"])


@pytest.mark.parametrize(
    "comes_back", [pytest.param(True, id="comes-back"), pytest.param(False, id="stays-away", marks=soak)]
)
@pytest.mark.parametrize("tls", [pytest.param(True, id="tls"), pytest.param(False, id="plain", marks=soak)])
def test_a_node_that_is_killed_while_others_pull_from_it(
    nursery: Nursery,
    keys: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tls: bool,
    comes_back: bool,
) -> None:
    with nodes_of(nursery, tmp_path, 2, everywhere=keys if tls else None) as started, contextlib.closing(tq):
        client = tq.attach(started.part(0)).client
        client.place_partition("p")
        meta = nursery.start(_puts, started.part(1), 12).receive()
        restarts: list[threading.Thread] = []
        windows = PullPart.windows

        def kill_first(part: PullPart, field: str, offset: int, nbytes: int) -> Any:
            if not restarts:
                restarts.append(threading.Thread(target=lambda: comes_back and started.restart(1)))
                started.processes[1].kill()
                restarts[0].start()
            return windows(part, field, offset, nbytes)

        monkeypatch.setattr(PullPart, "windows", kill_first)
        if comes_back:
            assert torch.equal(client.get_data(meta, timeout=60)["x"], rows(12)["x"])
        else:
            with pytest.raises(tq.DataLostError) as caught:
                client.get_data(meta, timeout=60)
            assert set(caught.value.rows) == set(meta.global_indexes)
            stats = client.stats()
            assert (stats.pending_bytes, stats.leased_bytes, stats.copies_bytes) == (0, 0, 0)
        restarts[0].join()


@pytest.mark.parametrize(
    ("of_head", "meaning"),
    [
        (True, "it wants cluster.tls_cert and cluster.tls_key here, too"),
        (False, "speaks no TLS: it wants cluster.tls_cert and cluster.tls_key, too, or none of them here"),
    ],
    ids=["head", "node"],
)
def test_a_node_that_does_not_fit_its_head_says_what_to_set(
    ours: TlsFiles,
    keys: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    of_head: bool,
    meaning: str,
) -> None:
    monkeypatch.setattr(program, "_JOINED_WITHIN_S", 0.5)
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("is not looked at before the handshake")
    with serving(tls=ours if of_head else None) as head:
        join = ["node", "--join", f"{HOST}:{head.port}", "--token-file", str(token)]
        if not of_head:
            join += [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
        assert cli.main(join) == 1
    assert meaning in capsys.readouterr().err
