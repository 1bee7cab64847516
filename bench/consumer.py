"""A second process, as the package has it."""

from __future__ import annotations

from transferqueue.microbench.consumer import Consumer as Consumer
