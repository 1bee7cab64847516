"""Metrics as a Prometheus server would see them."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families


@dataclass
class Scrape:
    """One reading of an endpoint: (sample name, labels) -> value."""

    samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float:
        """Of ``transferqueue_<name>`` with exactly these labels."""
        return self.samples[f"transferqueue_{name}", frozenset(labels.items())]

    def names(self) -> set[str]:
        return {name for name, _ in self.samples}


def parse(text: str) -> Scrape:
    return Scrape(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )


def scrape(address: str | None) -> Scrape:
    """From ``host:port``."""
    assert address is not None, "there is no endpoint"
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=20) as answer:
        assert answer.status == 200
        return parse(answer.read().decode())
