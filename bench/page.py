"""docs/benchmarks.md from a record of the runner: goals, peers, where we lose, failures. `python -m bench.page` renders
the last record again without measuring."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.goals import CLAIMS, GOALS, SYSTEM, Verdict, judge, value_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
RECORD = ROOT / "bench" / "results" / "latest.json"
BEGIN, END = "<!-- measured: begin (written by `make bench`) -->", "<!-- measured: end -->"

# What is compared with peers: column, value, how it is called in words. Less is better in all of them.
COMPARED = (
    ("put ms", "put_ms", "put"),
    ("get ms", "get_ms", "get"),
    ("put + get / memcpy", "put_get_ratio", "put + get"),
    ("get + touch / memcpy", "get_touch_ratio", "get + touching every page"),
    ("put + get + touch / memcpy", "put_get_touch_ratio", "put + get + touching every page"),
)
Record = Mapping[str, Any]


def number(value: float | None) -> str:
    """Three significant digits, thousands with commas; empty for None."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def by_claim(results: Sequence[Record]) -> dict[str, list[Record]]:
    """Results of each measurement, ours first, then in the order taken; the last where a system was measured twice."""
    found: dict[str, dict[str, Record]] = {}
    for result in results:
        found.setdefault(result["claim"], {})[result["system"]] = result
    return {claim: sorted(items.values(), key=lambda item: item["system"] != SYSTEM) for claim, items in found.items()}


def goals_table(verdicts: Sequence[Verdict]) -> str:
    """Every goal with what was measured."""
    rows = []
    for verdict in verdicts:
        goal, word = verdict.goal, verdict.word
        shown = f"{number(verdict.measured)} {goal.unit}".strip() if verdict.measured is not None else ""
        rows.append(
            [
                f"{goal.number}. {CLAIMS[goal.number]}",
                goal.title,
                goal.promise,
                f"**{shown}**" if shown else "",
                word if word == "met" else f"**{word}**",
            ]
        )
    return table(["claim", "measured", "must be", "ours", ""], rows)


def peers_tables(results: Sequence[Record]) -> str:
    """One table for each measurement that a peer was measured with too."""
    parts = []
    for claim, items in by_claim(results).items():
        if len(items) < 2:
            continue
        columns = [column for column in COMPARED if any(value_of(item, column[1]) is not None for item in items)]
        rows = [
            [
                f"**{item['system']}**" if item["system"] == SYSTEM else item["system"],
                *[number(value_of(item, name)) for _, name, _ in columns],
            ]
            for item in items
        ]
        parts.append(f"`{claim}`\n\n" + table(["system", *[title for title, _, _ in columns]], rows))
    return "\n\n".join(parts)


def losses(results: Sequence[Record]) -> list[str]:
    """Every value in which a peer was ahead of us in this run, in words."""
    found = []
    for claim, items in by_claim(results).items():
        ours = items[0]
        if ours["system"] != SYSTEM:
            continue
        for _, name, words in COMPARED:
            mine = value_of(ours, name)
            for peer in items[1:]:
                theirs = value_of(peer, name)
                if mine and theirs and theirs < mine:
                    found.append(
                        f"`{claim}`, {words}: {peer['system']} {number(theirs)}, ours {number(mine)}"
                        f" ({'ms' if name.endswith('_ms') else 'x memcpy'})"
                    )
    return found


def picture(name: str, words: str) -> str:
    """A plot in the reader's theme."""
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="images/{name}-dark.png">'
        f'<img alt="{words}" src="images/{name}-light.png"></picture>'
    )


def render(record: Record, pictures: Mapping[str, str]) -> str:
    """What stands between the markers; `pictures` maps names of plots to their words."""
    machine, results = record["machine"], record["results"]
    verdicts = judge(GOALS, results)
    missed = [verdict for verdict in verdicts if verdict.word == "not met"]
    unmeasured = [verdict for verdict in verdicts if verdict.word == "not measured"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    load = ", ".join(str(value) for value in machine["load_before"])
    parts = [
        f"Taken {machine['taken']} on {machine['cpus']} CPUs ({machine['cpu']}), Linux {machine['kernel']}, Python "
        f"{machine['python']}, {versions}; load average before the run: {load}; the run took "
        f"{record['seconds'] / 60:.1f} minutes.",
        f"{len(verdicts) - len(missed) - len(unmeasured)} of {len(verdicts)} goals met, {len(missed)} not met, "
        f"{len(unmeasured)} not measured.",
        goals_table(verdicts),
        "### Against the peers",
        *[picture(name, words) for name, words in pictures.items()],
        peers_tables(results),
        "### Where we lose",
        "\n".join(f"- {line}" for line in losses(results)) or "No peer was ahead in any value of this run.",
    ]
    if record["failed"]:
        parts += ["### Failed", "\n".join(f"- {name}: {why}" for name, why in record["failed"].items())]
    return "\n\n".join(parts)


def insert(page: str, measured: str) -> str:
    """The page with what stands between its markers replaced. Raises ValueError when it has no markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n\n{measured}\n\n{END}{after}"


def write(record: Record) -> None:
    """Plots and page."""
    from bench.plot import plot_all

    PAGE.write_text(insert(PAGE.read_text(), render(record, plot_all(record["results"], PAGE.parent / "images"))))


def main() -> int:
    if not RECORD.exists():
        print(f"there is no {RECORD.relative_to(ROOT)}: run `make bench`", file=sys.stderr)
        return 1
    write(json.loads(RECORD.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
