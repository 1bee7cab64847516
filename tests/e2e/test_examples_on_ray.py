"""The smaller examples, as their modules run them; one Ray cluster for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from examples.common.cluster import start_ray
from examples.dedup.__main__ import run as run_dedup
from examples.dedup.corpus import make_corpus
from examples.dedup.sketches import resemblance, shingles
from examples.tensor_parallel import demo

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", autouse=True)
def ray_cluster() -> Iterator[None]:
    import ray

    start_ray(num_cpus=8)
    yield
    ray.shutdown()


def test_the_same_loop_finds_the_same_on_an_object_in_this_process_and_on_ray() -> None:
    corpus = make_corpus(120, copies=20)
    found = [run_dedup(way, 2, corpus.texts, 0.6)[0] for way in ("object", "local", "ray")]
    assert found[0] == found[1] == found[2]
    sets = [shingles(text) for text in corpus.texts]
    alike = {
        (one, other)
        for one in range(len(sets))
        for other in range(one + 1, len(sets))
        if resemblance(sets[one], sets[other]) >= 0.6
    }
    assert len(alike & corpus.planted) >= 18, "an edited copy still resembles its original"
    assert found[0].found <= alike, "what is found was compared in full"
    assert len(found[0].found) >= 0.9 * len(alike), "sketches miss few"


def test_the_first_rank_of_each_replica_answers_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.run()
    table = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line] for line in table]
    assert [(row[1], row[2], row[5]) for row in cells] == [
        ("0", "0", "True"),
        ("0", "1", "False"),
        ("1", "0", "True"),
        ("1", "1", "False"),
    ]
    assert [row[4] for row in cells] == ["0, 1, 2, 3, 4"] * 2 + ["5, 6, 7, 8, 9"] * 2
    assert [row[6] for row in cells] == ["0, 1, 2, 3, 4", "none", "5, 6, 7, 8, 9", "none"]
