"""Ray as a peer: the program that `tq bench` runs, once for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.warm_workers import warm_workers

pytestmark = pytest.mark.timeout(300)


def test_it_measures_both_forms_and_compares_every_row() -> None:
    pytest.importorskip("ray")
    command = [sys.executable, "-m", "transferqueue.microbench.ray_peer", "--rows", "4", "--rounds", "1"]
    with warm_workers():
        environment = os.environ | {"RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    [line] = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    found = {(result["claim"], result["system"]): result for result in json.loads(line.removeprefix("RESULT "))}
    for form in ("TensorDict", "dict"):
        result = found["put_get_w", f"Ray, zero-copy switch, {form}"]
        assert result["checked_rows"] == 4
        assert result["facts"]["put_get_touch_ratio"] >= result["summary"]["put_get_ratio"]
    assert len(found["small_8x16", "Ray, zero-copy switch, empty call"]["get_s"]) == 20
