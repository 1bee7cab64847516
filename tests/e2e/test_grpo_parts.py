"""The parts of the GRPO example on their own: model, generation, losses, rewards, configuration."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

from examples.common.batching import jagged, join, pad_left, pad_right
from examples.common.data_loader import DataLoader, string_column
from examples.common.demonstrations import final_answer, worked_answer
from examples.common.generate import generate, positions_of
from examples.common.losses import group_advantages, k3_divergence, policy_loss, reward_to_go
from examples.common.model import ModelConfig, Transformer
from examples.common.task import ChainSumTask, Problem, task_config_of
from examples.common.tokenizer import EOS_ID, CharTokenizer
from examples.common.weights import flatten_state, initial_state, unflatten_state
from examples.grpo.config import GrpoConfig, load_config
from examples.grpo.reward_worker import RewardWorker
from tests.e2e.tensor_parallel_ranks import MODEL, Step, full_step, run_ranks
from tests.support.nursery import Nursery

pytestmark = pytest.mark.timeout(120)


# Tensor and data parallelism


@pytest.fixture(scope="module")
def on_one() -> Step:
    return full_step()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as found:
        yield found


@pytest.mark.parametrize(("dp", "tp"), [(1, 2), (2, 1)])
def test_parallel_ranks_compute_what_one_process_does(dp: int, tp: int, on_one: Step, nursery: Nursery) -> None:
    """Forward, loss, clipped gradient and the step: two gloo processes against the whole model."""
    shards = on_one.log_probs.chunk(dp)
    for rank, found in enumerate(run_ranks(nursery, dp, tp)):
        torch.testing.assert_close(found.log_probs, shards[rank % dp], rtol=1e-4, atol=1e-5)
        assert found.loss == pytest.approx(on_one.loss, rel=1e-4)
        assert found.grad_norm == pytest.approx(on_one.grad_norm, rel=1e-4)
        assert found.gradient.keys() == on_one.gradient.keys()
        for name, gradient in found.gradient.items():
            torch.testing.assert_close(gradient, on_one.gradient[name], rtol=1e-3, atol=1e-6, msg=name)
        for name, weight in found.state.items():
            torch.testing.assert_close(weight, on_one.state[name], rtol=1e-3, atol=1e-5, msg=name)
        if tp > 1:
            assert found.local_parameters < 0.7 * on_one.local_parameters, "a rank holds its shard, not the model"


def test_weights_survive_the_flat_row() -> None:
    state = initial_state(MODEL, 3, 0.1)
    restored = unflatten_state(flatten_state(state), MODEL)
    assert restored.keys() == state.keys()
    assert all(torch.equal(restored[name], state[name]) for name in state)
    with pytest.raises(ValueError, match="the model has"):
        unflatten_state(torch.zeros(7), MODEL)


# Generation


def test_generation_with_cache_equals_logits_without(model: Transformer) -> None:
    """Greedy decoding with the cache takes, at each step, the token that the whole forward pass prefers."""
    prompts, mask = pad_left([[1, 5, 13, 6, 15], [1, 7, 15], [1, 4]], 6)
    made = generate(model, prompts, mask, max_new_tokens=5, temperature=0.0, generator=torch.Generator().manual_seed(0))
    for row, response in enumerate(made.rows()):
        tokens = prompts[row][mask[row]]  # without padding: it must not matter either
        for token in response:
            positions = torch.arange(len(tokens)).unsqueeze(0)
            logits = model(tokens.unsqueeze(0), positions, torch.ones(1, len(tokens)))[0, -1]
            assert int(token) == int(logits.argmax())
            tokens = torch.cat([tokens, token.unsqueeze(0)])


def test_generation_ends_at_eos_and_is_seeded(model: Transformer) -> None:
    prompts, mask = pad_left([[1, 5, 13, 6, 15]] * 64, 6)
    made = [
        generate(model, prompts, mask, max_new_tokens=8, temperature=1.0, generator=torch.Generator().manual_seed(seed))
        for seed in (7, 7, 8)
    ]
    assert torch.equal(made[0].tokens, made[1].tokens)
    assert not torch.equal(made[0].lengths, made[2].lengths)
    assert any(len(row) < 8 for row in made[0].rows()), "some response ends early"
    for row in made[0].rows():
        assert EOS_ID not in row[:-1]
        assert len(row) == 8 or row[-1] == EOS_ID
    with pytest.raises(ValueError, match="temperature"):
        generate(model, prompts, mask, max_new_tokens=1, temperature=-1.0, generator=torch.Generator())


def test_joined_batches_have_the_positions_of_generation() -> None:
    prompts, mask = pad_left([[1, 4], [1, 5, 6]], 4)
    joined = join(prompts, mask, jagged([torch.tensor([7, 2]), torch.tensor([8, 9, 2])]), 4)
    assert joined.input_ids.tolist() == [[0, 0, 1, 4, 7, 2, 0, 0], [0, 1, 5, 6, 8, 9, 2, 0]]
    assert joined.position_ids[0, :6].tolist() == [0, 0, 0, 1, 2, 3]
    assert joined.response_mask.tolist() == [[True, True, False, False], [True, True, True, False]]
    assert torch.equal(joined.position_ids, positions_of(joined.attention_mask))
    with pytest.raises(ValueError, match="max_prompt_length"):
        pad_left([[1, 2, 3]], 2)


# GRPO


def test_advantages_are_scores_against_the_group() -> None:
    scores = torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 1.0])
    found = group_advantages(scores, ["a", "a", "b", "b", "c", "c"], 2, norm_by_std=True)
    assert found[:2].tolist() == pytest.approx([math.sqrt(0.5), -math.sqrt(0.5)], rel=1e-4)
    assert found[2:].tolist() == [0.0] * 4, "a group whose scores are equal says nothing"
    centred = group_advantages(scores, ["a", "a", "b", "b", "c", "c"], 2, norm_by_std=False)
    assert centred.tolist() == [0.5, -0.5, 0.0, 0.0, 0.0, 0.0]


def test_advantages_do_not_depend_on_where_a_group_lies() -> None:
    scores = torch.tensor([1.0, 2.0, 3.0, 0.0])
    apart = group_advantages(scores, ["a", "b", "a", "b"], 2, norm_by_std=False)
    assert apart.tolist() == [-1.0, 1.0, 1.0, -1.0]


def test_a_torn_group_is_refused() -> None:
    with pytest.raises(ValueError, match=r"groups of 2 expected.*'b': 1"):
        group_advantages(torch.zeros(3), ["a", "a", "b"], 2, norm_by_std=True)


def test_policy_gradient_raises_what_was_better_and_stops_at_the_clip() -> None:
    old = torch.full((2, 1), -1.0)
    mask = torch.ones(2, 1, dtype=torch.bool)
    advantages = torch.tensor([[1.0], [-1.0]])

    def gradient(log_probs: torch.Tensor) -> tuple[list[float], int]:
        now = log_probs.clone().requires_grad_()
        loss = policy_loss(now, old, old, advantages, mask, clip_ratio_low=0.2, clip_ratio_high=0.2, kl_loss_coef=0.0)
        loss.loss.backward()  # type: ignore[no-untyped-call]
        assert now.grad is not None
        return now.grad.flatten().tolist(), int(loss.clipped)

    assert gradient(old) == ([-1.0, 1.0], 0)
    assert gradient(old + torch.tensor([[0.5], [-0.5]])) == ([0.0, 0.0], 2), "moved beyond the clip already"
    assert gradient(old + torch.tensor([[-0.5], [0.5]]))[1] == 0, "the wrong way round is never clipped"


def test_padding_adds_nothing_to_the_loss() -> None:
    generator = torch.Generator().manual_seed(0)
    now, old, ref = (-torch.rand(3, 4, generator=generator) for _ in range(3))
    mask = torch.arange(4) < torch.tensor([[2], [4], [1]])
    options = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "kl_loss_coef": 0.5}
    advantages = torch.randn(3, 4, generator=generator)
    whole = policy_loss(now, old, ref, advantages, mask, **options)
    changed = torch.where(mask, now, torch.tensor(-9.0))
    assert torch.equal(policy_loss(changed, old, ref, advantages, mask, **options).loss, whole.loss)


def test_divergence_is_zero_for_equal_and_positive_for_different() -> None:
    logits, other = torch.tensor([-0.1, -2.0, -3.0]), torch.tensor([-1.0, -1.0, -3.0])
    assert k3_divergence(logits, logits).tolist() == [0.0] * 3
    assert (k3_divergence(logits, other)[:2] > 0).all()


def test_returns_are_the_rewards_to_come() -> None:
    assert reward_to_go(torch.tensor([[0.0, 0.5, 1.0]])).tolist() == [[1.5, 1.5, 1.0]]


# Rewards


@pytest.fixture
def rewards(config: GrpoConfig, monkeypatch: pytest.MonkeyPatch) -> RewardWorker:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    threads = torch.get_num_threads()
    worker = RewardWorker(config)
    torch.set_num_threads(threads)
    return worker


def test_the_number_after_the_last_equals_sign_is_scored(rewards: RewardWorker) -> None:
    tokenizer = CharTokenizer()
    answers = ["8=6", "6", "6=8", "8=60", "", "="]
    batch = TensorDict(
        {
            "responses": jagged([torch.tensor(tokenizer.encode_response(answer)) for answer in answers]),
            "ground_truth": string_column(["6"] * len(answers)),
        },
        batch_size=[len(answers)],
    )
    scored = rewards.compute_rm_score(batch)
    rows = [row.tolist() for row in scored["rm_scores"].unbind()]
    assert [row[-1] for row in rows[:3]] == [1.0, 1.0, 0.0]
    assert all(row[-1] < 1.0 for row in rows[3:])
    assert [len(row) for row in rows] == [len(answer) + 1 for answer in answers], "jagged like the responses"
    assert all(value == 0.0 for row in rows for value in row[:-1]), "the score stands on the last token"
    assert scored["reward/accuracy"] == pytest.approx(2 / 6)


def test_advantages_stand_on_every_token_of_the_response(rewards: RewardWorker, config: GrpoConfig) -> None:
    n = config.actor_rollout_ref.rollout.n
    scores = jagged([torch.tensor([0.0, float(row == 0)]) for row in range(n)])
    batch = TensorDict({"rm_scores": scores, "uid": string_column(["a"] * n)}, batch_size=[n])
    found = rewards.compute_advantage(batch)
    first, *others = pad_right(found["advantages"], 2).tolist()
    assert first[0] == first[1] > 0
    assert all(row[0] == row[1] < 0 for row in others)
    assert pad_right(found["returns"], 2)[0].tolist() == [1.0, 1.0]
    assert pad_right(found["token_level_rewards"], 2)[0].tolist() == [0.0, 1.0]


# Task and data


def test_worked_answers_are_right(config: GrpoConfig) -> None:
    task = ChainSumTask(task_config_of(config.data))
    assert worked_answer(Problem("3+5-2=", "6")) == "8=6"
    for problem in task.held_out:
        answer = final_answer(worked_answer(problem))
        assert task.score(answer, problem.ground_truth) == 1.0
        assert eval(problem.prompt[:-1]) == int(problem.ground_truth)


def test_held_out_sums_are_never_trained_on(config: GrpoConfig) -> None:
    task = ChainSumTask(task_config_of(config.data))
    held_out = {problem.prompt for problem in task.held_out}
    assert len(held_out) == config.data.val_size
    for number in (0, 1):
        stream = task.train_stream(number)
        assert not held_out & {next(stream).prompt for _ in range(500)}


def test_groups_lie_in_consecutive_rows(config: GrpoConfig) -> None:
    n, prompts = config.actor_rollout_ref.rollout.n, config.data.train_batch_size
    batch = DataLoader(config).train_batch(1)
    uids = batch.get("uid").tolist()
    assert batch.batch_size[0] == n * prompts
    assert all(len(set(uids[start : start + n])) == 1 for start in range(0, n * prompts, n))
    assert len(set(uids)) == prompts
    again = DataLoader(config).train_batch(1)
    assert torch.equal(batch["prompts"], again["prompts"]), "seeded"


# Configuration


def test_overrides_change_what_they_name_only() -> None:
    changed = load_config(["trainer.seed=5", "actor_rollout_ref.actor.optim.lr=0.5"])
    plain = load_config()
    assert (changed.trainer.seed, changed.actor_rollout_ref.actor.optim.lr) == (5, 0.5)
    changed.trainer.seed, changed.actor_rollout_ref.actor.optim.lr = (
        plain.trainer.seed,
        plain.actor_rollout_ref.actor.optim.lr,
    )
    assert changed == plain


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("trainer.sed=5", "sed"),
        ("trainer.seed=many", "seed"),
        ("trainer.seed", "trainer.seed"),
        ("trainer.passing=pigeon", "pigeon"),
        ("data.train_batch_size=3", "train_batch_size"),
        ("model.num_heads=3", "num_heads"),
    ],
)
def test_wrong_overrides_are_refused_by_name(override: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    from examples.grpo.__main__ import main

    assert main([override]) == 2
    assert named in capsys.readouterr().err


def test_the_printed_configuration_can_be_read_again(tmp_path: Path) -> None:
    from examples.common.config import to_yaml

    config = load_config(["trainer.seed=9"])
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(config))
    assert load_config((), file) == config


@pytest.fixture(scope="module")
def config() -> GrpoConfig:
    return load_config(["data.val_size=64"])


@pytest.fixture(scope="module")
def model() -> Transformer:
    sizes = ModelConfig(CharTokenizer.vocab_size, 16, hidden_size=16, num_layers=2, num_heads=2)
    made = Transformer(sizes)
    made.load_state_dict(initial_state(sizes, 1, 0.3))
    return made
