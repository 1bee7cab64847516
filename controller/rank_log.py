"""The last lines that a rank wrote, read where it ran."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from transferqueue.controller.rank_facts import RankFacts
from transferqueue.workers.ray_runtime import inside_ray, require_ray

MAX_LINES = 20
_MAX_NBYTES = 8192
_MAX_LINE = 400
_READ_TIMEOUT_S = 5.0
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Lines by which Ray marks whose output follows.
_MARKER = re.compile(r":(job_id|actor_name|task_name):")


def own_log_paths() -> tuple[str, ...]:
    """The files that standard output and error of this process go to; none where they are no files."""
    paths = []
    for descriptor in (1, 2):
        try:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue
        if path.endswith((".out", ".err", ".log")) and os.path.isfile(path):
            paths.append(path)
    return tuple(dict.fromkeys(paths))


def last_lines(paths: Sequence[str], count: int = MAX_LINES) -> tuple[str, ...]:
    """The last lines of files of this node, in the order of `paths`: at most `count` of each, and no more than the last
    8 KiB. A file that is not there has none."""
    lines: list[str] = []
    for path in paths:
        try:
            with Path(path).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _MAX_NBYTES))
                text = file.read(_MAX_NBYTES).decode(errors="replace")
        except OSError:
            continue
        own = [_COLOUR.sub("", line)[:_MAX_LINE].rstrip() for line in text.split("\n")]
        lines += [line for line in own if line and not _MARKER.match(line)][-count:]
    return tuple(lines)


def log_of(facts: RankFacts) -> tuple[str, ...]:
    """`last_lines` of a rank, wherever it ran; none when its node does not answer within 5 s."""
    if not facts.log_paths:
        return ()
    if not inside_ray():
        return last_lines(facts.log_paths)
    ray = require_ray("the log of a rank")
    if facts.node_id == ray.get_runtime_context().get_node_id():
        return last_lines(facts.log_paths)
    on_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(facts.node_id, soft=False)
    reading = ray.remote(last_lines).options(num_cpus=0, max_retries=0, scheduling_strategy=on_node)
    try:
        return tuple(ray.get(reading.remote(facts.log_paths), timeout=_READ_TIMEOUT_S))
    except ray.exceptions.RayError:  # the node is gone, or busy: the report of the death must not wait for it
        return ()
