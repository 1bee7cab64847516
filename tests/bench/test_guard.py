"""The guard: passes on this product, fires on a slower one, never compares times."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from bench import guard
from bench.guard import World, Worse
from transferqueue.client import TransferQueueClient

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def world() -> Iterator[World]:
    with guard.world() as opened:
        yield opened


@pytest.mark.timing
def test_no_ratio_worsened_by_more_than_half() -> None:
    assert [str(item) for item in guard.check(guard.read_baseline())] == []


def test_it_fires_when_a_ratio_is_worse() -> None:
    recorded = {"put_against_memcpy": 1.2, "get_against_memcpy": 0.03}
    assert guard.worse(recorded, recorded) == []
    assert guard.worse({"put_against_memcpy": 1.79, "get_against_memcpy": 0.01}, recorded) == []
    found = guard.worse({"put_against_memcpy": 1.81, "get_against_memcpy": 0.01}, recorded)
    assert found == [Worse("put_against_memcpy", 1.2, 1.81)]
    assert "put_against_memcpy" in str(found[0])
    assert "1.51x" in str(found[0])


def test_it_fires_on_each_recorded_ratio() -> None:
    recorded = guard.read_baseline()
    for name in recorded:
        assert [item.name for item in guard.worse(recorded | {name: recorded[name] * 1.51}, recorded)] == [name]


@pytest.mark.timing
@pytest.mark.parametrize("name", ["put_against_memcpy", "small_put_against_python"])
def test_it_fires_when_the_product_gets_slower(world: World, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Every put done three times: the bytes are copied three times, so is the index written."""
    before = min(guard.measure(world, [name])[name] for _ in range(3))
    put = TransferQueueClient.put

    def thrice(self: TransferQueueClient, *args: Any, **kwargs: Any) -> Any:
        put(self, *args, **kwargs)
        put(self, *args, **kwargs)
        return put(self, *args, **kwargs)

    monkeypatch.setattr(TransferQueueClient, "put", thrice)
    after = min(guard.measure(world, [name])[name] for _ in range(3))
    assert [item.name for item in guard.worse({name: after}, {name: before})] == [name]


def test_a_check_measures_again_what_was_worse_and_only_that(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    # The first try was disturbed in all ratios, the second in none.
    answers = iter([10.0, 1.0])

    def measure(_: Any, names: Any) -> dict[str, float]:
        asked.append(list(names))
        return dict.fromkeys(names, next(answers))

    monkeypatch.setattr(guard, "measure", measure)
    monkeypatch.setattr(guard, "settle", lambda client: 1)
    assert guard.check(dict.fromkeys(guard.RATIOS, 1.0)) == []
    assert asked == [list(guard.RATIOS), sorted(guard.RATIOS)]


def test_without_huge_pages_ratios_that_need_them_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def measure(_: Any, names: Any) -> dict[str, float]:
        asked.extend(names)
        return dict.fromkeys(names, 1.0)

    monkeypatch.setattr(guard, "measure", measure)
    monkeypatch.setattr(guard, "settle", lambda client: 0)
    assert guard.check(dict.fromkeys(guard.RATIOS, 1.0)) == []
    assert set(asked) == guard.RATIOS.keys() - guard.PAGED
    assert guard.RATIOS.keys() > guard.PAGED


def test_a_check_gives_up_after_its_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "PAUSE_S", 0.0)
    monkeypatch.setattr(guard, "settle", lambda client: 1)
    monkeypatch.setattr(guard, "measure", lambda _, names: dict.fromkeys(names, 2.0))
    recorded = dict.fromkeys(guard.RATIOS, 2.0) | {"small_get_against_python": 1.0}
    assert guard.check(recorded, tries=3) == [Worse("small_get_against_python", 1.0, 2.0)]


def test_a_ratio_without_a_record_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"new_against_memcpy.*--record"):
        guard.worse({"a": 1.0, "new_against_memcpy": 1.0}, {"a": 1.0})
    with pytest.raises(ValueError, match="gone"):
        guard.worse({"a": 1.0}, {"a": 1.0, "gone": 1.0})


def test_what_is_recorded_are_ratios_of_all_that_is_measured() -> None:
    recorded = json.loads(guard.BASELINE.read_text())
    assert recorded["ratios"].keys() == guard.RATIOS.keys()
    assert all(math.isfinite(ratio) and ratio > 0 for ratio in recorded["ratios"].values())
    assert all("_against_" in name for name in recorded["ratios"])
