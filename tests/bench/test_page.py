"""The page: honest about goals, peers, losses and failures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.goals import GOALS
from bench.page import BEGIN, END, PAGE, insert, losses, number, peers_tables, render
from bench.plot import PLOTS, THEMES, plot_all
from tests.bench.results import record, result

OURS = result("put_get_w", put_s=0.005, get_s=0.001, memcpy_s=0.005, put_get_touch_ratio=2.0)
RAW = result("put_get_w", "raw shm", put_s=0.005, get_s=0.0005, memcpy_s=0.005, put_get_touch_ratio=1.2)
RAY = result("put_get_w", "Ray default", put_s=0.1, get_s=0.05, memcpy_s=0.005, put_get_touch_ratio=31.0)


def test_met_and_not_met_are_said_of_every_goal() -> None:
    page = render(record(OURS, RAW, RAY, result("small", small_put_ms=0.2, small_get_ms=0.05)), {})
    assert "| put + get of W | <= 1.2 x memcpy | **1.2 x memcpy** | met |" in page
    assert "| 8 rows x 16 floats, put | <= 0.15 ms | **0.2 ms** | **not met** |" in page
    assert page.count("**not measured**") == len(GOALS) - 4
    assert f"3 of {len(GOALS)} goals met, 1 not met, {len(GOALS) - 4} not measured." in page


def test_the_machine_its_load_and_the_time_stand_above_the_numbers() -> None:
    page = render(record(OURS), {})
    for words in ("2030-01-02 03:04:05", "2 CPUs (a CPU)", "load average before the run: 0.1, 0.2, 0.3", "2.0 minutes"):
        assert words in page


def test_where_a_peer_is_ahead_is_said_of_each_value() -> None:
    assert losses([RAY, RAW, OURS]) == [
        "`put_get_w`, get: raw shm 0.5, ours 1 (ms)",
        "`put_get_w`, put + get: raw shm 1.1, ours 1.2 (x memcpy)",
        "`put_get_w`, put + get + touching every page: raw shm 1.2, ours 2 (x memcpy)",
    ]
    assert losses([OURS, RAY]) == []
    assert losses([result("put_get_w", get_s=0.001), OURS]) == []  # ourselves, measured twice
    assert losses([RAW, RAY]) == []


def test_we_stand_first_among_the_peers_and_alone_in_no_table() -> None:
    shown = peers_tables([RAY, OURS, result("alone", put_s=1.0)])
    assert shown.index("transferqueue-shm") < shown.index("Ray default")
    assert "alone" not in shown


def test_failures_are_listed() -> None:
    page = render(record(OURS, failed={"keys": "no luck"}), {})
    assert "### Failed\n\n- keys: no luck" in page
    assert "### Failed" not in render(record(OURS), {})


def test_only_what_stands_between_the_markers_is_replaced() -> None:
    page = f"# Title\n\n{BEGIN}\n\nold\n\n{END}\n\nthe end\n"
    once = insert(page, "new")
    assert once == f"# Title\n\n{BEGIN}\n\nnew\n\n{END}\n\nthe end\n"
    assert insert(once, "new") == once
    with pytest.raises(ValueError, match="measured: begin"):
        insert("# no markers", "new")
    assert insert(PAGE.read_text(), "new")


def test_numbers_have_three_digits() -> None:
    assert [number(value) for value in (None, 0.0, 0.012345, 1.234, 12345.6)] == ["", "0", "0.0123", "1.23", "12,346"]


def test_plots_are_made_for_light_and_dark_pages_and_shown_by_the_readers_theme(tmp_path: Path) -> None:
    steady = {
        f"{name}_ratio": 1.0
        for name in ("first_touch", "second_touch", "first_read", "second_read", "drop", "get_drop")
    }
    read = result("first_read_steady", get_s=0.001, memcpy_s=0.005, **steady)
    rates = {f"concurrency_{kind}_rounds_per_second_{count}": count for kind in ("small", "large") for count in (1, 2)}
    drawn = plot_all([OURS, RAW, RAY, read, result("concurrency_small", **rates)], tmp_path)
    assert drawn.keys() == PLOTS.keys()
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}-{theme.name}.png" for name in PLOTS for theme in THEMES
    }
    page = render(record(OURS), drawn)
    for name in PLOTS:
        assert re.search(f'dark[^>]*images/{name}-dark.png.*src="images/{name}-light.png"', page)
    # A run without these measurements draws nothing and shows no old picture.
    assert plot_all([], tmp_path) == {}
    assert "<picture>" not in render(record(), {})
