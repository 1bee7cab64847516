"""What the README promises a newcomer, run as it stands there."""

from __future__ import annotations

import inspect
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import transferqueue as tq
from tests.support.sessions import left_behind, stop
from transferqueue.storage.names import new_session_name

pytestmark = pytest.mark.timeout(120)
README = (Path(__file__).parents[2] / "README.md").read_text()


def program(name: str) -> str:
    found = re.search(rf"```python\n(# {name}\n.*?)```", README, re.DOTALL)
    assert found, f"the README has no {name}"
    return found.group(1)


@pytest.mark.parametrize("first", ["producer.py", "consumer.py"])
def test_two_processes_in_any_order(first: str, tmp_path: Path) -> None:
    session = new_session_name()
    processes = {}
    second = {"producer.py": "consumer.py", "consumer.py": "producer.py"}[first]
    for name in (first, second):
        (tmp_path / name).write_text(program(name).replace("run-1", session))
        processes[name] = subprocess.Popen(
            [sys.executable, str(tmp_path / name)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    output = {name: process.communicate(timeout=100) for name, process in processes.items()}
    assert [process.returncode for process in processes.values()] == [0, 0], output
    assert output["producer.py"][0].replace(" ", "") == "tensor([6.,22.,38.,54.,70.,86.,102.,118.])\n"
    assert left_behind(session) == []


CREATOR = """
import sys, time, transferqueue as tq
session = tq.init(session=sys.argv[1], **{"storage.size": "16MiB"})
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.alone
@pytest.mark.parametrize(("number", "leaves"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_how_a_creator_ends(number: signal.Signals, leaves: bool) -> None:
    name = new_session_name()
    process = subprocess.Popen(
        [sys.executable, "-c", CREATOR, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    stop(process, number)
    assert bool(left_behind(name)) == leaves
    with tq.init(**{"storage.size": "16MiB"}):
        assert left_behind(name) == [], "the next init removes what was killed"


def test_which_calls_have_an_async_form() -> None:
    without = set(re.findall(r"`(\w+)`", README.split("has an `async_` form")[1].split("have none")[0]))
    functions = {name for name in tq.__all__ if inspect.isfunction(getattr(tq, name)) and not name.startswith("async_")}
    assert {name for name in functions if not hasattr(tq, f"async_{name}")} == without
    client = tq.TransferQueueClient
    methods = {
        name for name, _ in inspect.getmembers(client, inspect.isfunction) if not name.startswith(("_", "async_"))
    }
    without.add("count_method")  # for the bridge; nothing in it waits
    assert {name for name in methods if not hasattr(client, f"async_{name}")} <= without
