"""The plots of docs/benchmarks.md, each for light and for dark pages: `NAME-light.png` and `NAME-dark.png`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.goals import CLAIMS, GOALS, SYSTEM, judge, value_of

Record = Mapping[str, Any]
# Draws into an axis; the height in rows of text, 0 when the results hold nothing to draw.
Draw = Callable[[Any, Sequence[Record], "Theme"], int]
LINES_HEIGHT_ROWS = 8


@dataclass(frozen=True)
class Theme:
    """Colours on an opaque background, so that a picture is readable wherever it is shown."""

    name: str
    background: str
    text: str
    grid: str
    ours: str
    other: str
    missed: str


THEMES = (
    Theme("light", "#ffffff", "#1f2328", "#d1d9e0", "#0969da", "#9aa4b2", "#cf222e"),
    Theme("dark", "#0d1117", "#e6edf3", "#3d444d", "#58a6ff", "#6e7681", "#ff7b72"),
)


def put_get(axis: Any, results: Sequence[Record], theme: Theme) -> int:
    """put + get of W by every system: the two calls, and on top what touching every page costs the consumer."""
    chosen = [item for item in results if item["claim"] == "put_get_w" and item["summary"].get("put_get_ratio")]
    if not chosen:
        return 0
    chosen.sort(key=lambda item: -item["summary"]["put_get_ratio"])
    names = [item["system"] for item in chosen]
    ratios = [item["summary"]["put_get_ratio"] for item in chosen]
    touched = [value_of(item, "put_get_touch_ratio") or ratio for item, ratio in zip(chosen, ratios, strict=True)]
    colours = [theme.ours if name == SYSTEM else theme.other for name in names]
    axis.barh(names, touched, color=colours, alpha=0.35)
    axis.barh(names, ratios, color=colours)
    for row, (ratio, total) in enumerate(zip(ratios, touched, strict=True)):
        axis.text(max(ratio, total) * 1.05, row, f"{ratio:.2f}x ({total:.2f}x)", va="center", color=theme.text)
    axis.set_xscale("log")
    axis.set_xlim(0.5, max(touched) * 3.5)
    axis.axvline(1.0, color=theme.text, linewidth=1, linestyle="--")
    axis.set_xlabel("put + get of W (pale: and touching every page), in memcpys of the same bytes")
    return len(chosen)


def goals(axis: Any, results: Sequence[Record], theme: Theme) -> int:
    """Each goal's value over its limit (the limit over the value where more is better): left of the line is met."""
    shown = []
    for verdict in judge(GOALS, results):
        limit, measured = verdict.goal.limit, verdict.measured
        if measured is None or limit <= 0:
            continue
        share = limit / measured if verdict.goal.at_least and measured > 0 else measured / limit
        label = f"{CLAIMS[verdict.goal.number]}: {verdict.goal.title}"
        shown.append((label, max(share, 0.01), theme.ours if verdict.word == "met" else theme.missed))
    if not shown:
        return 0
    shown.reverse()
    labels, shares, colours = zip(*shown, strict=True)
    axis.barh(labels, shares, color=colours)
    axis.set_xscale("log")
    axis.set_xlim(0.01, max(*shares, 2.0) * 1.5)
    axis.axvline(1.0, color=theme.text, linewidth=1, linestyle="--")
    axis.set_xlabel("share of the limit (logarithmic; the line is the limit)")
    axis.tick_params(axis="y", labelsize=8)
    return len(shown)


def first_read(axis: Any, results: Sequence[Record], theme: Theme) -> int:
    """Minor faults apart, what a consumer pays for W: get, first and second touch of every page, drop."""
    found = {item["claim"]: item for item in results if item["system"] == SYSTEM}
    steady = found.get("first_read_steady")
    if steady is None:
        return 0
    parts = [
        ("get", steady["summary"]["get_ratio"]),
        ("first touch", steady["facts"]["first_touch_ratio"]),
        ("second touch", steady["facts"]["second_touch_ratio"]),
        ("first read", steady["facts"]["first_read_ratio"]),
        ("second read", steady["facts"]["second_read_ratio"]),
        ("drop", steady["facts"]["drop_ratio"]),
    ]
    if "first_read_fresh" in found:
        parts.append(("fresh process: get + touch", found["first_read_fresh"]["facts"]["get_touch_ratio"]))
    parts.reverse()
    axis.barh([name for name, _ in parts], [value for _, value in parts], color=theme.ours)
    for row, (_, value) in enumerate(parts):
        axis.text(value, row, f" {value:.3f}x", va="center", color=theme.text)
    axis.set_xlim(0, max(value for _, value in parts) * 1.2)
    axis.set_xlabel("what the consumer pays for W, in memcpys of the same bytes")
    return len(parts)


def concurrency(axis: Any, results: Sequence[Record], theme: Theme) -> int:
    """Aggregate rounds of put and get as processes are added, as a share of the best number of processes."""
    colours = {"small": theme.ours, "large": theme.missed, "larger": theme.text}
    drawn = 0
    for kind, colour in colours.items():
        start = f"concurrency_{kind}_rounds_per_second_"
        rates = {
            int(name.removeprefix(start)): value
            for item in results
            if item["system"] == SYSTEM
            for name, value in item["facts"].items()
            if name.startswith(start)
        }
        if not rates:
            continue
        counts = sorted(rates)
        shares = [rates[count] / max(rates.values()) for count in counts]
        axis.plot(range(len(counts)), shares, color=colour, marker="o", label=f"{kind} batches")
        axis.set_xticks(range(len(counts)), [str(count) for count in counts])
        drawn = LINES_HEIGHT_ROWS
    if drawn:
        axis.axhline(0.85, color=theme.text, linewidth=1, linestyle="--")
        axis.set_ylim(0, 1.05)
        axis.set_xlabel("processes that put and get (the line: 0.85 of the best)")
        axis.legend(facecolor=theme.background, edgecolor=theme.grid, labelcolor=theme.text, loc="lower left")
    return drawn


PLOTS: Mapping[str, tuple[Draw, str]] = {
    "put-get": (put_get, "put + get of W by every system, in memcpys of the same bytes"),
    "first-read": (first_read, "what the consumer of W pays: get, first and second read, drop"),
    "concurrency": (concurrency, "aggregate throughput as processes are added, as a share of the best"),
    "goals": (goals, "every goal as a share of its limit"),
}


def plot_all(results: Sequence[Record], folder: Path) -> dict[str, str]:
    """Draws what the results hold, in each theme; the names of the plots that exist now, with their words."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for name, (draw, words) in PLOTS.items():
        for theme in THEMES:
            figure, axis = pyplot.subplots(figsize=(9, 3), facecolor=theme.background)
            try:
                height_rows = draw(axis, results, theme)
                if not height_rows:
                    continue
                _dress(figure, axis, theme, height_rows)
                figure.savefig(folder / f"{name}-{theme.name}.png", dpi=130, facecolor=theme.background)
                drawn[name] = words
            finally:
                pyplot.close(figure)
    return drawn


def _dress(figure: Any, axis: Any, theme: Theme, height_rows: int) -> None:
    figure.set_size_inches(9, 0.3 * height_rows + 1.2)
    if axis.get_xscale() == "log":
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    if axis.patches:
        axis.set_ylim(-0.6, height_rows - 0.4)
    axis.set_facecolor(theme.background)
    axis.tick_params(which="both", colors=theme.text)
    axis.xaxis.label.set_color(theme.text)
    axis.grid(axis="x", color=theme.grid, linewidth=0.6)
    axis.set_axisbelow(True)
    for side, spine in axis.spines.items():
        spine.set_color(theme.grid)
        spine.set_visible(side in ("left", "bottom"))
    figure.tight_layout()
