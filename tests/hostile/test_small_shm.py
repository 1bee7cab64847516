"""Machines with too little shared memory, as containers have by default."""

from __future__ import annotations

import os

import pytest

import transferqueue as tq
from tests.support.sessions import left_behind
from tests.support.small_file_systems import run_with_small
from transferqueue.storage.names import new_session_name

pytestmark = pytest.mark.timeout(120)


def test_a_store_larger_than_the_machine_is_refused_with_both_sizes(tmp_path: object) -> None:
    name = new_session_name()
    for options in ({}, {"storage.dir": str(tmp_path)}):
        with pytest.raises(tq.StorageFullError, match=r"storage\.size is 512\.0 TiB.*free of.*storage\.dir") as caught:
            tq.init(session=name, **{"storage.size": 1 << 49, "storage.index_size": "16MiB", **options})
        assert caught.value.wanted_bytes is not None
        assert caught.value.free_bytes is not None
        assert caught.value.wanted_bytes > caught.value.free_bytes
        assert left_behind(name) == []
    assert os.listdir(str(tmp_path)) == []


IN_A_CONTAINER = """
import os, sys, torch, transferqueue as tq
from tensordict import TensorDict

def megabytes(count):
    return TensorDict({"x": torch.full((count, 1 << 20), 7, dtype=torch.uint8)}, [count])

try:
    tq.init(**{"storage.size": "1GiB"})
except tq.StorageFullError as error:
    print("refused", "1.0 GiB" in str(error), "64.0 MiB" in str(error))
assert os.listdir("/dev/shm") == []

with tq.init(**{"storage.size": "1GiB", "storage.dir": sys.argv[1]}):
    meta = tq.put(megabytes(80), partition_id="p")
    print("in a file", int(tq.get_data(meta)["x"].sum()) == 80 * 7 << 20)
assert os.listdir("/dev/shm") == os.listdir(sys.argv[1]) == []

with tq.init(**{"storage.size": "40MiB"}):
    first = tq.put(megabytes(8), partition_id="p")
    with open("/dev/shm/somebody-elses", "wb") as file:  # the machine fills up behind the session's back
        try:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
        except OSError:
            pass
    try:
        tq.put(megabytes(28), partition_id="p", timeout=0)
    except tq.StorageFullError as error:
        print("full")
    print("still there", tq.get_data(first)["x"].unique().tolist())
    os.unlink("/dev/shm/somebody-elses")
    print("again", tq.get_data(tq.put(megabytes(28), partition_id="p", timeout=0))["x"].unique().tolist())
assert os.listdir("/dev/shm") == []
"""


def test_field_case_74_64_mib_of_shared_memory(tmp_path: object) -> None:
    """In a mount namespace of its own whose /dev/shm is 64 MiB."""
    done = run_with_small({"/dev/shm": "64m"}, IN_A_CONTAINER, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "refused True True",
        "in a file True",
        "full",
        "still there [7]",
        "again [7]",
    ]
