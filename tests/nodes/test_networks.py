"""Nodes in network namespaces: addresses of their own, and a link between them that is cut for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nodes import workers
from tests.support.network import shaped_network, unavailable
from tests.support.nodes import LOST_AFTER_S, nodes_of
from tests.support.nursery import Nursery
from tests.support.sessions import wait_for

pytest.importorskip("pyarrow.flight")
pytestmark = [pytest.mark.timeout(180), pytest.mark.skipif(unavailable() is not None, reason=unavailable() or "")]


def test_a_node_that_was_cut_off_is_lost_meanwhile_and_back_with_its_rows(tmp_path: Path) -> None:
    with (
        Nursery() as nursery,
        shaped_network(megabits_a_second=200) as network,
        nodes_of(nursery, tmp_path, 2, networks=network.places) as nodes,
    ):
        assert nodes.processes[1].endpoint.startswith(network.places[1][1])
        rows = nursery.start(workers.makes_rows, nodes.part(1), "kept", 4).receive()
        near, far = (
            nursery.start(workers.looks_at_nodes, nodes.part(number), network.places[number][0]) for number in (0, 1)
        )

        def seen(looker: object) -> object:
            looker.pipe.send("look")  # type: ignore[attr-defined]
            return looker.receive()  # type: ignore[attr-defined]

        assert seen(near) == seen(far) == [(0, True), (1, True)]
        network.cut()
        wait_for(lambda: seen(near) == [(0, True), (1, False)], LOST_AFTER_S + 20.0, "that the node is lost")
        network.mend()
        wait_for(lambda: seen(near) == [(0, True), (1, True)], 60.0, "that it is back")
        assert seen(far) == [(0, True), (1, True)]
        assert nursery.start(workers.lists_rows, nodes.part(1), "kept").receive() == rows
        for looker in (near, far):
            looker.pipe.send(None)
            assert looker.wait() == 0
