"""Where and when numbers were taken: what must stand beside them."""

from __future__ import annotations

import os
import platform
import time
from importlib import metadata
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """CPUs, kernel, versions, the time and the load average before anything was measured."""
    return {
        "taken": time.strftime("%Y-%m-%d %H:%M:%S"),
        "cpu": _cpu_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "versions": {name: version for name in ("torch", "tensordict", "ray") if (version := _version(name))},
        "load_before": [round(value, 2) for value in os.getloadavg()],
    }


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
