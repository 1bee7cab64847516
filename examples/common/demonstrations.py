"""What the warm-up shows: the same sum answered at once, or with running totals.

``7+5-3=`` is answered ``9`` at once, and ``12=9`` worked out. Both are right. Working it out is by far the easier way
for a small model to get there, but most demonstrations show the other one: which of the two pays is left for
reinforcement learning to find out.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator

from examples.common.task import Problem

_NUMBER = re.compile(r"[+-]?\d+")


def worked_answer(problem: Problem) -> str:
    """The running totals from the second term on, joined by ``=``."""
    terms = [int(text) for text in _NUMBER.findall(problem.prompt)]
    totals = list(itertools.accumulate(terms))
    return "=".join(str(total) for total in totals[1:] or totals)


def final_answer(text: str) -> str:
    """What is scored of a response: the text after its last ``=``, all of it without one."""
    return text.rpartition("=")[2]


def demonstrations(problems: Iterator[Problem], worked_share: float, seed: int) -> Iterator[tuple[Problem, str]]:
    """Each problem with a right answer, worked out for a random `worked_share` of them."""
    rng = random.Random(seed)
    for problem in problems:
        yield problem, worked_answer(problem) if rng.random() < worked_share else problem.ground_truth
