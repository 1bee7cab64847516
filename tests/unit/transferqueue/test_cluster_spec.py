"""Where the servers of a session that spans a Ray cluster listen."""

from __future__ import annotations

from typing import Any

import pytest

from transferqueue.cluster.cluster_spec import ClusterSpec
from transferqueue.config_sources import Given

VARIABLE = "TRANSFERQUEUE_CLUSTER__HOST"


def spec(**overrides: Any) -> ClusterSpec:
    given = Given.by(None, overrides)
    return ClusterSpec("run", "t" * 32, given.values, given.of_creator(), "node")


def test_a_node_listens_where_its_own_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spec().host_here("10.0.0.1") == "10.0.0.1"
    assert spec(**{"cluster.host": "127.0.0.1"}).agent("a", "10.0.0.1").host == "127.0.0.1"
    monkeypatch.setenv(VARIABLE, "192.168.0.1")
    of_creator = spec()
    assert of_creator.host_here("10.0.0.1") == "192.168.0.1"
    monkeypatch.setenv(VARIABLE, "192.168.0.2")  # another node, whose raylet has another environment
    assert of_creator.host_here("10.0.0.2") == "192.168.0.2"
    monkeypatch.delenv(VARIABLE)  # and one without: the creator's is no address of it
    assert of_creator.host_here("10.0.0.3") == "10.0.0.3"


def test_the_token_is_in_no_text() -> None:
    assert "tttt" not in repr(spec()) + repr(spec().agent("a", "10.0.0.1"))
