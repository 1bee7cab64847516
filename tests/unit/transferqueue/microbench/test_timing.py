"""The unit and the record of a measurement."""

from __future__ import annotations

import json

import pytest

from transferqueue.microbench.timing import Measured, MemcpyUnit, page_faults


def test_the_summary_has_medians_spread_and_ratios_to_the_memcpy_of_the_run() -> None:
    measured = Measured("w", "ours", put_s=[0.004, 0.006, 0.005], get_s=[0.001, 0.003, 0.002], memcpy_s=[0.005] * 3)
    summary = measured.summary()
    assert summary["put_ms"] == pytest.approx(5.0)
    assert (summary["put_ms_min"], summary["put_ms_max"]) == pytest.approx((4.0, 6.0))
    assert summary["put_ratio"] == pytest.approx(1.0)
    # The median of the rounds' sums: 5, 9, 7 ms.
    assert summary["put_get_ratio"] == pytest.approx(1.4)


def test_without_a_memcpy_there_is_no_ratio_to_one() -> None:
    summary = Measured("w", "ours", put_s=[0.004], get_s=[0.001]).summary()
    assert not [name for name in summary if "ratio" in name or "memcpy" in name]
    assert summary["put_get_ms"] == pytest.approx(5.0)


def test_touches_are_told_alone_and_on_top_of_get_and_put() -> None:
    measured = Measured("w", "ours", put_s=[0.005] * 3, get_s=[0.001] * 3, memcpy_s=[0.005] * 3)
    measured.add_touches([0.004, 0.002, 0.003])
    assert measured.facts["touch_ratio"] == pytest.approx(0.6)
    assert measured.facts["get_touch_ratio"] == pytest.approx(0.8)
    assert measured.facts["put_get_touch_ratio"] == pytest.approx(1.8)


def test_the_record_is_json_with_every_raw_second() -> None:
    measured = Measured("w", "ours", 3, put_s=[0.25, 0.5])
    again = json.loads(json.dumps(measured.as_json()))
    assert again["put_s"] == [0.25, 0.5]
    assert again["summary"]["put_ms"] == pytest.approx(375.0)


def test_the_unit_copies_its_bytes_into_shared_memory() -> None:
    unit = MemcpyUnit(1 << 20)
    assert unit.seconds() > 0
    assert int(unit._destination.sum()) == 1 << 20
    before = page_faults()[0]
    unit.seconds()
    assert page_faults()[0] - before < 16  # warm: 256 pages on each side
