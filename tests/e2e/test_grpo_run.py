"""The main job, tiny, through its entry point: once with metadata, once with batches and the controller in an actor."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.grpo_process import FinishedRun, run_example
from tests.support.warm_workers import warm_workers

pytestmark = pytest.mark.timeout(900)

_SHM = Path("/dev/shm")


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.soak)])
def tensor_parallel(request: pytest.FixtureRequest) -> int:
    """Ranks that share a model. Two, as by default, make two more processes a run, of seconds each."""
    size: int = request.param
    return size


def layout(tensor_parallel: int) -> str:
    return f"actor_rollout_ref.actor.tensor_parallel_size={tensor_parallel}"


@pytest.fixture(scope="module")
def by_metadata(tmp_path_factory: pytest.TempPathFactory, tensor_parallel: int) -> FinishedRun:
    folder = tmp_path_factory.mktemp("metadata")
    return run_example(folder, "--passing", "metadata", "trainer.required_gain=-1", layout(tensor_parallel))


@pytest.fixture(scope="module")
def by_batch(tmp_path_factory: pytest.TempPathFactory, tensor_parallel: int) -> FinishedRun:
    """Asks for more than any run can gain, so that it must fail, but only at its end. The other run starts its
    processes as a user's does; those of this one start faster."""
    folder = tmp_path_factory.mktemp("batch")
    arguments = ("--passing", "batch", "--controller", "actor", "trainer.required_gain=2")
    with warm_workers():
        return run_example(folder, *arguments, layout(tensor_parallel))


def test_exit_codes_say_whether_it_learned(by_metadata: FinishedRun, by_batch: FinishedRun) -> None:
    assert by_metadata.code == 0, by_metadata.output
    assert by_batch.code == 3, by_batch.output
    assert "trainer.required_gain" in by_batch.output


def test_runs_leave_their_artefacts(by_metadata: FinishedRun, by_batch: FinishedRun) -> None:
    for run in (by_metadata, by_batch):
        assert [row["step"] for row in run.steps()] == [1, 2]
        assert (run.folder / "reward.png").read_bytes().startswith(b"\x89PNG")
        assert "hidden_size: 32" in (run.folder / "config.yaml").read_text()


def test_the_terminal_shows_configuration_progress_and_costs(by_metadata: FinishedRun, tensor_parallel: int) -> None:
    output = by_metadata.output
    assert " total_training_steps=2 " in " ".join(output.split()), "the resolved configuration"
    assert f"ranks: rollout 2, actor {2 * tensor_parallel}, reward 2" in output
    for line in ("before warm-up", "after warm-up", "step   2/2", "after GRPO"):
        assert line in output
    table = next(line for line in output.splitlines() if "per step" in line)
    assert "passing metadata (2 steps)" in table
    assert "passing batch (1 steps)" in table, "both costs of the same run, side by side"


def test_metadata_is_all_that_passes_through_the_controller(by_metadata: FinishedRun, by_batch: FinishedRun) -> None:
    assert max(by_metadata.controller_nbytes()) < 20_000
    assert min(by_metadata.controller_nbytes()) > 1_000, "metadata does pass, in whatever form it travels"
    assert min(by_batch.controller_nbytes()) > 2 * max(by_metadata.controller_nbytes())


def test_the_payload_is_in_shared_memory_with_metadata_only(by_metadata: FinishedRun, by_batch: FinishedRun) -> None:
    rows, width = 16, 7 + 8
    read = [row["viewed_bytes"] + row["copied_bytes"] for row in by_metadata.steps()]
    assert max(read) < 1.5 * min(read), "what the warm-up and evaluations read is counted in no step"
    for row in by_metadata.steps():
        assert row["written_bytes"] >= 8 * rows * (7 + 2 * width), "prompts, attention_mask and position_ids alone"
        assert row["viewed_bytes"] + row["copied_bytes"] > row["written_bytes"], "several stages read each field"
    for row in by_batch.steps():
        assert row["written_bytes"] == row["viewed_bytes"] == row["copied_bytes"] == 0


def test_both_ways_of_passing_compute_the_same(by_metadata: FinishedRun, by_batch: FinishedRun) -> None:
    """Same seed, same layout: rewards, losses and lengths of the two runs agree."""
    names = [name for name in by_metadata.steps()[0] if name.startswith(("reward/", "response/", "actor/"))]
    assert {"reward/mean", "response/length", "actor/loss", "actor/kl", "actor/grad_norm"} <= set(names)
    for mine, other in zip(by_metadata.steps(), by_batch.steps(), strict=True):
        for name in names:
            assert mine[name] == pytest.approx(other[name], rel=1e-4, abs=1e-6), name


def test_nothing_stays_behind(by_metadata: FinishedRun, by_batch: FinishedRun) -> None:
    for run in (by_metadata, by_batch):
        assert not [entry.name for entry in _SHM.iterdir() if run.session() in entry.name]
