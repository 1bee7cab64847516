"""What a node says of second copies, as others read it."""

from __future__ import annotations

from pathlib import Path

from tests.support.sessions import embedded
from transferqueue.metrics.readings import read
from transferqueue.nodes.replica_figures import ReplicaFigures, read_figures, write_figures


def test_it_is_read_as_it_was_written_and_told_as_far_as_it_is_known() -> None:
    with embedded() as session:
        paths, store = session.attachment.paths, session.attachment.store
        assert read_figures(paths) is None
        for figures in (ReplicaFigures(3, 1), ReplicaFigures(None, 2)):
            write_figures(paths, figures)
            assert read_figures(paths) == figures
            told = read(store, session=session.name, version="1", replicas=figures).values
            assert told["transferqueue_under_replicated_partitions"] == [((), figures.under_replicated_partitions)]
            assert ("transferqueue_under_replicated_rows" in told) == (figures.under_replicated_rows is not None)
        file = Path(paths.replica_figures)
        for damaged in ("", "{}", "[1]", file.read_text().replace("2", "7", 1), '{"under_replicated_rows": "x"}'):
            file.write_text(damaged)
            assert read_figures(paths) is None, damaged
