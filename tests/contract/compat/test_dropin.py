"""A program written for the other package, run by `tq dropin`: one copy of each module, in all its processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(120)

# What a program of the other package looks like: it knows nothing of this one.
PROGRAM = """
import importlib.metadata, importlib.resources, json, multiprocessing, os, pickle, subprocess, sys
from unittest import mock

import transfer_queue as tq
import transfer_queue.interface
from transfer_queue.dataloader.streaming_dataset import chunk_batch_fn
from transfer_queue.metadata import BatchMeta, KVBatchMeta
from transfer_queue.sampler.seqlen_balanced_sampler import get_seqlen_balanced_partitions
from transfer_queue.utils.logging_utils import get_logger


def where():
    import transfer_queue

    return transfer_queue.__file__


def in_child(pipe, metadata):
    pipe.send((where(), isinstance(metadata, KVBatchMeta), tq.kv_list()))


def main():
    import ray
    import torch

    said = {"here": where(), "version": importlib.metadata.version("TransferQueue"), "input": sys.stdin.read()}
    said["config"] = os.path.isfile(importlib.resources.files("transfer_queue") / "config.yaml")
    said["aliases"] = {
        name: module is sys.modules["transferqueue.compat." + name]
        for name, module in sys.modules.items()
        if name.split(".")[0] == "transfer_queue"
    }
    with mock.patch("transfer_queue.interface.kv_list", lambda: "patched"):
        said["patched"] = transfer_queue.interface.kv_list()
    said["pickled"] = pickle.loads(pickle.dumps(BatchMeta)) is tq.BatchMeta

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    tq.init({"transferqueue": {"storage": {"size": "64MiB"}}})
    metadata = tq.kv_put("k", "p", {"x": torch.ones(2)}, {"n": 1})

    @ray.remote
    def on_a_worker(metadata):
        return where(), isinstance(metadata, KVBatchMeta), tq.kv_batch_get_by_meta(metadata)["x"].is_nested

    said["worker"] = ray.get(on_a_worker.remote(metadata))
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=in_child, args=(theirs, metadata))
    child.start()
    said["spawned"] = ours.recv()
    child.join()
    command = [sys.executable, "-c", "import transfer_queue as t; print(t.__file__)"]
    said["started"] = subprocess.run(command, cwd="/", capture_output=True, text=True).stdout.strip()
    tq.close()
    ray.shutdown()
    print(json.dumps(said))
    sys.exit(5)


if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like site-packages, with another TransferQueue in it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "transfer_queue").mkdir()
    (folder / "transfer_queue" / "__init__.py").write_text("other = True\n")
    info = folder / "TransferQueue-0.0.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: TransferQueue\nVersion: 0.0.9\n")
    return folder


def run(command: list[str], folder: Path, site: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site), "RAY_worker_niceness": "0"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100, check=False, **options
    )


def test_everything_that_the_program_starts_sees_one_package(site: Path, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    command = [sys.executable, "-m", "transferqueue.cli", "dropin", "--", sys.executable, str(script)]
    done = run(command, tmp_path, site, input="typed")
    assert done.returncode == 5, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    ours = said["here"]
    assert Path(ours).parts[-4:] == ("transferqueue", "compat", "transfer_queue", "__init__.py")
    assert said["version"] == "0.1.11"
    assert said["input"] == "typed"
    assert said["config"] is True
    assert len(said["aliases"]) > 10
    assert all(said["aliases"].values())
    assert said["patched"] == "patched"
    assert said["pickled"] is True
    assert said["worker"] == [ours, True, True]
    assert said["spawned"] == [ours, True, {"p": {"k": {"n": 1}}}]
    assert said["started"] == ours


def test_a_program_that_did_not_ask_finds_what_is_installed(site: Path, tmp_path: Path) -> None:
    code = (
        "import transferqueue, transferqueue.cli, importlib.metadata, transfer_queue; "
        "print(transfer_queue.__file__, transfer_queue.other, importlib.metadata.version('TransferQueue'))"
    )
    done = run([sys.executable, "-c", code], tmp_path, site)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(site / "transfer_queue" / "__init__.py"), "True", "0.0.9"]
