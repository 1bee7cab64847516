"""The readings as `prometheus_client` wants them. Imported only where metrics are served: the library is optional."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from transferqueue.errors import TransferQueueError
from transferqueue.metrics.catalogue import CATALOGUE, Metric
from transferqueue.metrics.readings import Readings, read
from transferqueue.nodes.replica_figures import NOTHING_KEPT_TWICE

if TYPE_CHECKING:
    from transferqueue._native import Store
    from transferqueue.nodes.replica_figures import ReplicaFigures

Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily


class SessionCollector:
    """Reads a session when it is scraped; holds no values of its own, so whoever serves it serves the same.

    Args:
        store, session, version: of the session.
        replicas: what its node says of second copies.
    """

    def __init__(
        self,
        store: Store,
        *,
        session: str,
        version: str,
        replicas: Callable[[], ReplicaFigures | None] = lambda: None,
    ) -> None:
        self._store = store
        self._replicas = replicas
        self._session = session
        self._version = version

    def describe(self) -> Iterable[Family]:
        """Nothing: a registry would otherwise read the session to learn the names."""
        return ()

    def collect(self) -> Iterator[Family]:
        """All metrics; only that the session is gone, where it is."""
        try:
            readings = read(
                self._store,
                session=self._session,
                version=self._version,
                replicas=self._replicas() or NOTHING_KEPT_TWICE,
            )
        except TransferQueueError:
            gone = Readings()
            gone.add("up", 0)
            yield _family(CATALOGUE[0], gone)
            return
        for metric in CATALOGUE:
            yield _family(metric, readings)


def _family(metric: Metric, readings: Readings) -> Family:
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        for labels, distribution in readings.distributions.get(metric.name, ()):
            buckets = [("+Inf" if math.isinf(end_s) else repr(end_s), count) for end_s, count in distribution.buckets]
            histogram.add_metric(labels, buckets, sum_value=distribution.sum_s)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.meaning, labels=metric.labels)
    for labels, value in readings.values.get(metric.name, ()):
        family.add_metric(labels, value)
    return family
