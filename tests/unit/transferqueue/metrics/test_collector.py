"""The exposition: names, types and labels as the catalogue says, readable by a strict parser of either format."""

from __future__ import annotations

import warnings

import torch
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from tensordict import TensorDict

from tests.support.scrape import parse
from tests.support.sessions import embedded
from transferqueue.metrics.catalogue import CATALOGUE
from transferqueue.metrics.collector import SessionCollector


def test_two_readings_in_both_formats_without_a_warning() -> None:
    registry = CollectorRegistry(auto_describe=False)
    with embedded() as session, warnings.catch_warnings():
        warnings.simplefilter("error")
        registry.register(SessionCollector(session.attachment.store, session=session.name, version="9"))
        assert parse(generate_latest(registry).decode()).value("puts_total") == 0
        session.client.put(TensorDict({"x": torch.arange(4)}, [4]), partition_id='odd "name" \\ and\nlines')
        text = generate_latest(registry).decode()
        found = parse(text)
        assert found.value("puts_total") == 1
        assert found.value("session_info", session=session.name, version="9") == 1
        assert found.value("rows", partition='odd "name" \\ and\nlines', state="ready") == 4
        kinds = {family.name: family.type for family in text_string_to_metric_families(text)}
        assert kinds == {
            metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name: metric.kind
            for metric in CATALOGUE
        }
        strict = {family.name for family in parse_openmetrics(openmetrics.generate_latest(registry).decode())}
        assert strict == kinds.keys()
        buckets = {key: value for key, value in found.samples.items() if key[0] == "transferqueue_put_seconds_bucket"}
        assert max(buckets.values()) == found.value("put_seconds_count") == 1
        assert found.value("put_seconds_sum") > 0
        store = session.attachment.store
    gone = parse(generate_latest(registry).decode())
    assert store.closed
    assert gone.samples == {("transferqueue_up", frozenset()): 0.0}
