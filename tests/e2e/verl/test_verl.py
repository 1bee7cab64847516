"""verl 0.9.1 as installed from PyPI, on this data plane: `tq dropin` runs its checks in one process with one Ray.

The checks know only verl and `transfer_queue`: run without the drop-in beside TransferQueue, they describe that.
`make verl` installs verl into build/verl, which no other test sees.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.warm_workers import warm_workers

pytestmark = pytest.mark.timeout(300)

_ROOT = Path(__file__).parents[3]
_CHECKS = Path(__file__).parent / "checks"
_VERL = _ROOT / "build" / "verl"
# In this order: the last two restart the queue.
_PARTS = ("worker_group", "agent_loop", "replay_buffer", "padding", "checkpoint", "task_runner")


class Finished:
    """A run of all checks: outcome by part, and its output."""

    def __init__(self, report: Path, code: int, output: str) -> None:
        self.code = code
        self.output = output
        self.failed: dict[str, list[str]] = {part: [] for part in _PARTS}
        self.passed: dict[str, int] = dict.fromkeys(_PARTS, 0)
        cases = ElementTree.parse(report).iter("testcase") if report.exists() else []
        for case in cases:
            part = str(case.get("classname")).rpartition("check_")[2]
            if len(case) == 0:
                self.passed[part] += 1
            else:  # a failure, an error or a skip: a check has no reason for any of them
                self.failed[part].append(f"{case.get('name')}:\n{case[0].get('message')}\n{case[0].text}")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    if not (_VERL / "verl").is_dir():
        pytest.skip("verl is not installed: `make verl` (20 MB, Python below 3.13)")
    report = tmp_path_factory.mktemp("verl") / "report.xml"
    checks = [str(_CHECKS / f"check_{part}.py") for part in _PARTS]
    # These are somebody's program, not tests of this tree: its conftest.py is not theirs.
    options = ["-q", f"--junitxml={report}", "--override-ini=python_files=check_*.py", f"--confcutdir={_CHECKS}"]
    command = [sys.executable, "-m", "pytest", *options, *checks]
    with warm_workers():
        before = os.environ.get("PYTHONPATH")
        done = subprocess.run(
            [sys.executable, "-m", "transferqueue.cli", "dropin", "--", *command],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(_VERL), str(_CHECKS), before]))},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )
    return Finished(report, done.returncode, done.stdout)


@pytest.mark.parametrize("part", _PARTS)
def test_verl_runs_on_this_data_plane(finished: Finished, part: str) -> None:
    assert not finished.failed[part], "\n".join(finished.failed[part])
    assert finished.passed[part] > 0, finished.output


def test_the_run_ends_well(finished: Finished) -> None:
    """With every check: nothing hangs or dies when the queue and Ray are taken down."""
    assert finished.code == 0, finished.output
