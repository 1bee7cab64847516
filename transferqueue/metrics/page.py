"""The page ``docs/metrics.md``, made from the catalogue; a test compares the two.

``python -m transferqueue.metrics.page >docs/metrics.md`` writes it anew.
"""

from __future__ import annotations

from transferqueue.metrics.catalogue import CATALOGUE

_ABOUT = """# Metrics

```python
import transferqueue as tq

tq.init(**{"metrics.port": 9400})  # needs prometheus_client: pip install 'transferqueue-shm[metrics]'
print(tq.get_metrics_endpoint())  # 127.0.0.1:9400, in any process of the session
```

The session's storage service serves metrics over HTTP for Prometheus, once `metrics.port` is set (0: a free port) or
`metrics.enabled` is true: whichever process runs the service, `tq serve` included. `get_metrics_endpoint` says where,
or None. A port that is taken is a warning, and the session goes on without metrics. Killed with its process, the
endpoint comes back with the next service, which any process of the session starts within seconds of its next call: on
the same port where one is set, else on another.

Before you open it: the endpoint has no password. It listens on this machine only, where every user can read it (names
of partitions, tasks and methods, no data), unless `metrics.host` says otherwise: `0.0.0.0` or `::` lets other machines
in.

Counters are of all processes since the session was made, dead ones included: they lie in the session's shared memory,
where each process adds to them as it goes. A service that takes over goes on with the same numbers. A process that is
killed in the midst of a call may leave that call uncounted. Counting costs a put or get about a tenth of a microsecond.
Values are read when they are scraped. A label value exists while its partition does; a method's stays.

`transferqueue/metrics/dashboard.json` is a dashboard for Grafana (installed, too:
`python -c "import transferqueue.metrics as m; print(m.__path__[0])"`). Histograms have two buckets to each power of
two, from 0.5 us to 69 s, so a quantile is at most half too high.

| metric | type | labels | unit | meaning |
| --- | --- | --- | --- | --- |
"""


def page() -> str:
    """The page as text."""
    rows = [
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} | {metric.unit} | "
        f"{metric.meaning} |"
        for metric in CATALOGUE
    ]
    return _ABOUT + "\n".join(rows) + "\n"


if __name__ == "__main__":
    print(page(), end="")
