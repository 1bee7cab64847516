"""Goals as data, and how a result is judged by them."""

from __future__ import annotations

import pytest

from bench.goals import CLAIMS, GOALS, Goal, judge
from tests.bench.results import result

FAST = Goal(1, "put", "put_w", "put_ratio", 1.2, "x memcpy")
MANY = Goal(4, "puts", "rows", "per_second", 5000, "/s", at_least=True)
FEW = Goal(10, "copies", "memory", "copies", 2.0, "copies", tolerance=0.02)


@pytest.mark.parametrize(
    ("goal", "value", "word"),
    [
        (FAST, 1.2, "met"),
        (FAST, 1.21, "not met"),
        (MANY, 5000, "met"),
        (MANY, 4999, "not met"),
        (FEW, 2.02, "met"),
        (FEW, 2.03, "not met"),
    ],
)
def test_a_goal_has_a_direction_and_a_tolerance(goal: Goal, value: float, word: str) -> None:
    facts = {goal.value: value}
    [verdict] = judge([goal], [result(goal.claim, **facts)])
    assert (verdict.measured, verdict.word) == (value, word)


def test_the_promise_says_direction_and_unit() -> None:
    assert FAST.promise == "<= 1.2 x memcpy"
    assert MANY.promise == ">= 5000 /s"


def test_ratios_come_from_the_summary_of_the_same_run() -> None:
    [verdict] = judge([FAST], [result("put_w", put_s=0.0055, memcpy_s=0.005)])
    assert verdict.measured == pytest.approx(1.1)
    assert verdict.word == "met"


def test_nothing_measured_is_never_met() -> None:
    only_a_peer = result("put_w", "Ray", put_s=0.001, memcpy_s=0.005)
    without_the_value = result("rows")
    verdicts = judge([FAST, MANY, FEW], [only_a_peer, without_the_value])
    assert [verdict.word for verdict in verdicts] == ["not measured"] * 3
    without_a_memcpy = result("put_w", put_s=0.001)
    assert judge([FAST], [without_a_memcpy])[0].word == "not measured"


def test_the_last_measurement_counts() -> None:
    [verdict] = judge([MANY], [result("rows", per_second=1), result("rows", per_second=6000)])
    assert verdict.word == "met"


def test_every_claim_has_goals_and_every_goal_its_own_title() -> None:
    assert {goal.number for goal in GOALS} == set(CLAIMS)
    assert len({(goal.number, goal.title) for goal in GOALS}) == len(GOALS)
    assert len({(goal.claim, goal.value) for goal in GOALS}) == len(GOALS)
    assert all(goal.limit >= 0 for goal in GOALS)
