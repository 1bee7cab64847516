"""The dashboard asks for nothing that is not exported, and shows everything that is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import resources
from typing import Any

import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.scrape import scrape
from tests.support.sessions import embedded
from transferqueue.metrics.catalogue import CATALOGUE


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((resources.files("transferqueue.metrics") / "dashboard.json").read_text())
    return found


def queries() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def test_every_metric_of_the_dashboard_is_exported_and_the_other_way_round() -> None:
    asked = {name for query in queries() for name in re.findall(r"transferqueue_[a-z_]+", query)}
    with embedded(**{"metrics.port": 0}) as session:
        session.client.set_limits("p", max_bytes="1MiB")
        session.client.put(TensorDict({"x": torch.arange(4)}, [4]), partition_id="p")
        session.client.get_meta(["x"], 2, "p", task_name="train")
        session.client.count_method(
            "m", rows=1, get_s=0.1, run_s=0.1, put_s=0.1, viewed_bytes=1, copied_bytes=1, failed=False
        )
        exported = scrape(tq.get_metrics_endpoint()).names()
    assert len(asked) > 20
    assert asked <= exported
    shown = {name.removesuffix("_bucket").removesuffix("_sum") for name in asked}
    assert {metric.name for metric in CATALOGUE} - shown == {"transferqueue_session_info"}


def test_labels_of_the_queries_are_those_of_the_metrics() -> None:
    labels = {label for metric in CATALOGUE for label in metric.labels} | {"le", "job", "instance"}
    for query in queries():
        grouped = re.findall(r"by \(([^)]*)\)", query)
        assert {name.strip() for group in grouped for name in group.split(",")} <= labels


def test_panels_lie_side_by_side() -> None:
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    taken: set[tuple[int, int]] = set()
    for place in places:
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)
