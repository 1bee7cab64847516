"""Node-sessions of one machine, found by the cluster's name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from transferqueue.config import build_config
from transferqueue.errors import SessionNotFoundError
from transferqueue.nodes.cluster_file import ClusterFile, write_cluster_file
from transferqueue.nodes.local_sessions import clusters_here, local_sessions, part_here
from transferqueue.storage.attachment import Attachment
from transferqueue.storage.creation import create_session
from transferqueue.storage.names import new_session_name, node_session_name

CONFIG = build_config({"storage.size": "4MiB"})


@pytest.fixture
def cluster() -> Iterator[str]:
    made: list[Attachment] = []
    name = new_session_name()
    for ordinal, node_id in ((10, "b"), (2, "a")):
        file = ClusterFile(name, ordinal, node_id, "127.0.0.1", 1, "127.0.0.1", 1, "secret")
        attachment = create_session(
            node_session_name(name, ordinal), CONFIG, prepare=lambda paths, file=file: write_cluster_file(paths, file)
        )
        assert attachment is not None
        made.append(attachment)
    # Names that only look like it: a session of one machine, and one of a longer name.
    for other in (f"{name}.n3", f"{name}-x.n4"):
        attachment = create_session(other, CONFIG)
        assert attachment is not None
        made.append(attachment)
    yield name
    for attachment in made:
        attachment.end()


def test_they_are_found_by_ordinal_and_by_node(cluster: str) -> None:
    assert [session.file.ordinal for session in local_sessions(cluster)] == [2, 10]
    assert [session.paths.name for session in local_sessions(cluster, node_id="b")] == [f"{cluster}.n10"]
    assert local_sessions(cluster, node_id="c") == local_sessions(f"{cluster}-x") == []
    assert cluster in clusters_here()
    assert f"{cluster}-x" not in clusters_here()


def test_only_one_that_lives_can_be_meant(cluster: str) -> None:
    first, second = local_sessions(cluster)
    assert part_here([second]) == second
    assert part_here([]) is None
    with pytest.raises(SessionNotFoundError, match=rf"2 nodes.*{cluster}\.n2.*{cluster}\.n10"):
        part_here([first, second])
