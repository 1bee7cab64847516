"""``python -m examples.tensor_parallel``."""

from __future__ import annotations

import sys

from examples.common.cluster import start_ray
from examples.tensor_parallel.demo import run


def main() -> int:
    """Runs the example; 0 when the ranks together computed what one process does."""
    import ray

    start_ray(num_cpus=4)
    try:
        return 0 if run() else 1
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
