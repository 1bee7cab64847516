"""What a node's session says about the cluster that it is part of."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace

import pytest

from tests.support.sessions import left_behind
from transferqueue.config import build_config
from transferqueue.errors import CorruptSegmentError, UntrustedFileError
from transferqueue.nodes.cluster_file import ClusterFile, ClusterOptions, read_cluster_file, write_cluster_file
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.tls import TlsFiles
from transferqueue.storage.attachment import Attachment, attach
from transferqueue.storage.checked_json import write_checked
from transferqueue.storage.creation import create_session
from transferqueue.storage.names import SessionPaths, new_session_name, node_session_name

CONFIG = build_config({"storage.size": "4MiB", "cluster.streams": 2, "cluster.replicas": 2})


def a_file(cluster: str, ordinal: int = 3) -> ClusterFile:
    return ClusterFile(
        cluster=cluster,
        ordinal=ordinal,
        node_id="machine-a",
        host="10.0.0.4",
        port=4711,
        directory_host="10.0.0.1",
        directory_port=4710,
        token="secret",
        nodes=(NodePlace(0, "10.0.0.1", 4710, "c.n0", "machine-b", False, 2),),
        tls=TlsFiles("/c", "/k", "/ca"),
        options=ClusterOptions.of(CONFIG.cluster),
    )


def node_session(file: ClusterFile) -> Attachment:
    name = node_session_name(file.cluster, file.ordinal)
    made = create_session(name, CONFIG, prepare=lambda paths: write_cluster_file(paths, file))
    assert made is not None
    return made


def test_whoever_joins_a_nodes_session_knows_the_cluster_and_where_it_is() -> None:
    file = a_file(new_session_name())
    made = node_session(file)
    try:
        joined = attach(made.paths.name)
        assert made.cluster == joined.cluster == file
        assert joined.session_name == file.cluster
        assert joined.paths.name == f"{file.cluster}.n3"
        assert file.options == ClusterOptions(streams=2, replicas=2)
        moved = replace(file, port=4712, incarnation=1)
        write_cluster_file(made.paths, moved)
        assert joined.cluster == file
        assert joined.cluster_now() == moved
        made.end()
        assert joined.cluster_now() == moved  # nothing there any more: the last that was seen
        joined.detach()
    finally:
        made.end()
    assert left_behind(file.cluster) == []


def test_a_session_of_one_machine_has_no_cluster() -> None:
    made = create_session(new_session_name(), CONFIG)
    assert made is not None
    try:
        assert made.cluster is None
        assert made.cluster_now() is None
        assert made.session_name == made.paths.name
    finally:
        made.end()


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"nodes": [[0, "h"]]},
        {"port": "4711"},
        {"options": {"streams": []}},
        {"tls": {"cert": "/c"}},
        {"token": None},
        {"ordinal": True},
    ],
)
def test_a_damaged_description_is_named(change: dict[str, object]) -> None:
    file = a_file(new_session_name())
    made = node_session(file)
    try:
        path = made.paths.cluster_file
        with open(path, encoding="utf-8") as stream:
            values = json.load(stream)
        of_all = {"crc32": values.pop("crc32")}
        changed = {**values, **change}
        for text in (write_checked(changed), json.dumps({**changed, **of_all}), "[]", "{", '{"format": 3}'):
            with open(path, "w", encoding="utf-8") as stream:
                stream.write(text)
            with pytest.raises(CorruptSegmentError, match=r"cluster\.json"):
                read_cluster_file(made.paths)
    finally:
        made.end()


def test_it_is_this_users_alone_and_says_no_token_aloud() -> None:
    file = a_file(new_session_name())
    made = node_session(file)
    try:
        assert stat.S_IMODE(os.stat(made.paths.cluster_file).st_mode) == 0o600
        assert "secret" not in repr(file)
        os.chmod(made.paths.cluster_file, 0o644)
        with pytest.raises(UntrustedFileError):
            read_cluster_file(made.paths)
    finally:
        made.end()


def test_names_of_node_sessions_fit() -> None:
    assert SessionPaths.of(node_session_name("c" * 58, 4095)).name == "c" * 58 + ".n4095"
    with pytest.raises(ValueError, match="up to 58 characters"):
        node_session_name("c" * 59, 0)
    with pytest.raises(ValueError, match="no session name"):
        node_session_name("../c", 0)
