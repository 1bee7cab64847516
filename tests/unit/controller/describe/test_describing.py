"""What a group of this process says of itself, and how facts become text."""

from __future__ import annotations

import io

import pytest

from tests.unit.controller.colocated.role_workers import Actor, Meshed
from transferqueue.controller import LocalWorkerGroup, RayClassWithInitArgs, create_colocated_worker_cls
from transferqueue.controller.describe.pool_description import PoolDescription
from transferqueue.controller.describe.text import aligned, ranges_text
from transferqueue.controller.pools.pool_facts import BundleFacts, PoolFacts

pytestmark = pytest.mark.timeout(60)


def test_a_group_of_this_process(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSFERQUEUE_SESSION", "session-1")
    roles = {"a": RayClassWithInitArgs(Meshed), "b": RayClassWithInitArgs(Meshed, swapped=True)}
    with LocalWorkerGroup(create_colocated_worker_cls({**roles, "actor": RayClassWithInitArgs(Actor)}), 2) as group:
        groups = group.spawn(["a", "b"])
        description = groups["b"].describe()
        assert capsys.readouterr().out == f"{description}\n"
        assert repr(description) == f"<{str(description).splitlines()[0]}>", "a prompt shows the table once"
        assert repr(groups["b"]) == "<LocalWorkerGroup of Meshed, role 'b', world size 2>"
        assert repr(LocalWorkerGroup.__new__(LocalWorkerGroup)) == "<LocalWorkerGroup, not started>"
        assert [mesh.dp_ranks for mesh in description.meshes] == [(1, 0)]
        assert [mesh.dp_ranks for mesh in groups["a"]._description(0.0).meshes] == [(0, 1)], "meshes of its own role"
        assert [rank.report.rank for rank in description.ranks if rank.report] == [0, 1]
        assert (description.pool, description.master, description.session) == (None, None, "session-1")
        assert "LocalWorkerGroup of Meshed, role 'b' of colocated workers: world size 2 on 1 node; takes calls" in str(
            description
        )
        assert "rendezvous: none; session: session-1" in str(description)
        output = io.StringIO()
        assert group.describe(file=output).meshes == ()
        told = "meshes: none registered; those of 'a', 'b', 'actor' are shown by the group of each"
        assert told in output.getvalue().splitlines()
        assert capsys.readouterr().out == ""
    assert "dead: closed" in str(group.describe())
    assert repr(group).endswith(", world size 2, dead>")


def test_a_rank_of_a_mesh_that_has_not_said() -> None:
    class Half(Meshed):
        def __init__(self) -> None:
            if self.rank == 1:
                super().__init__()

    with LocalWorkerGroup(Half, 3) as group:
        (mesh,) = group.describe().meshes
        assert (mesh.dp_ranks, mesh.collects, mesh.dp_size) == ((None, 1, None), (None, True, None), 1)
        assert str(mesh) == "mesh 'mesh': DP size 1; DP rank of each rank: ? 1 ?; collects: ? x ?"


def test_pool_text() -> None:
    bundles = tuple(
        BundleFacts(
            rank,
            rank % 2,
            2,
            f"pg_{rank // 2}",
            f"id_{rank // 2}",
            rank % 2,
            "n" * 20,
            f"10.0.0.{rank // 2}",
            devices,
            users,
        )
        for rank, (devices, users) in enumerate(
            [(("3",), ("Actor", "Critic")), ((), ()), ((), ("Actor",)), (("0",), ())]
        )
    )
    facts = PoolFacts(
        name="train",
        ranks_per_node=(2, 2),
        world_size=4,
        max_colocate_count=3,
        share=0.3333,
        use_gpu=True,
        device="NPU",
        bundle={"CPU": 3.0, "NPU": 1.0},
        request={"num_cpus": 1.0, "resources": {"NPU": 0.3333}},
        detached=True,
        is_reserved=True,
        strategy="PACK",
        users=("Actor", "Critic"),
        bundles=bundles,
    )
    description = PoolDescription(facts)
    assert description.bundle_nodes[("pg_1", 0)] == "10.0.0.1"
    lines = str(description).split("\n")
    assert repr(description) == f"<{lines[0]}>"
    assert lines[0] == ("pool 'train': world size 4, ranks per node [2, 2], reserved (PACK), outlives the program")
    assert lines[1] == (
        "a bundle is CPU 3, NPU 1; each of up to 3 groups asks for CPU 1, NPU 0.3333 of it; used by Actor, Critic"
    )
    assert lines[2] == f"placement group pg_0 (id_0): bundles 0-1 on 10.0.0.0 ({'n' * 12})"
    assert [line.split() for line in lines[4:]] == [
        ["rank", "local", "node", "placement", "group:bundle", "devices", "groups"],
        ["0", "0", "of", "2", "10.0.0.0", "pg_0:0", "3", "Actor,", "Critic"],
        ["1", "1", "of", "2", "10.0.0.0", "pg_0:1", "not", "known", "yet", "none"],
        ["2", "0", "of", "2", "10.0.0.1", "pg_1:0", "none", "Actor"],
        ["3", "1", "of", "2", "10.0.0.1", "pg_1:1", "0", "none"],
    ]


def test_text() -> None:
    assert aligned([("a", "long"), ("bbb", "c")]) == ["a    long", "bbb  c"]
    assert ranges_text([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert ranges_text([9, 3, 4]) == "9, 3-4"
    assert ranges_text([0, 2, 4, 6], limit=2) == "0, 2 and 2 more runs"
