"""The mathematics of the PPO example on its own: rewards, advantages, losses, control of the divergence."""

from __future__ import annotations

import pytest
import torch

from examples.common.batching import jagged, join, pad_left
from examples.common.model import ModelConfig, Transformer
from examples.common.trained_model import Optim
from examples.common.weights import initial_state
from examples.ppo.advantages import gae, moments, penalised_rewards, value_loss, whiten
from examples.ppo.config import KlControlConfig, load_config
from examples.ppo.critic import Critic, ValueTargets
from examples.ppo.kl_control import KlControl

pytestmark = pytest.mark.timeout(60)

MASK = torch.arange(4) < torch.tensor([[4], [2]])


def test_gae_is_the_discounted_sum_of_surprises() -> None:
    """Against the definition, token by token: the sum of (gamma lam)^k times the surprise k tokens later."""
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(2, 4, generator=generator), torch.randn(2, 4, generator=generator)
    gamma, lam = 0.9, 0.7
    advantages, returns = gae(rewards * MASK, values, MASK, gamma, lam)
    for row, length in enumerate((4, 2)):
        after = [*values[row, 1:length].tolist(), 0.0]
        surprise = [float(rewards[row, t]) + gamma * after[t] - float(values[row, t]) for t in range(length)]
        for t in range(length):
            expected = sum((gamma * lam) ** (k - t) * surprise[k] for k in range(t, length))
            assert float(advantages[row, t]) == pytest.approx(expected, rel=1e-5)
            assert float(returns[row, t]) == pytest.approx(expected + float(values[row, t]), rel=1e-5)
        assert advantages[row, length:].tolist() == returns[row, length:].tolist() == [0.0] * (4 - length)


def test_with_lambda_one_returns_are_the_rewards_to_come_whatever_the_critic_says() -> None:
    rewards = torch.tensor([[0.0, 1.0, 0.0, 2.0], [0.0, 3.0, 0.0, 0.0]])
    _, returns = gae(rewards, torch.full((2, 4), 7.0), MASK, 1.0, 1.0)
    assert returns.tolist() == [[3.0, 3.0, 2.0, 2.0], [3.0, 3.0, 0.0, 0.0]]


def test_divergence_is_paid_for_where_it_happens() -> None:
    scores = torch.tensor([[0.0, 0.0, 0.0, 1.0], [0.0, 0.5, 0.0, 0.0]])
    log_probs, ref = torch.full((2, 4), -1.0), torch.full((2, 4), -1.5)
    rewards, divergence = penalised_rewards(scores, log_probs, ref, MASK, kl_coef=0.2)
    torch.testing.assert_close(rewards, torch.tensor([[-0.1, -0.1, -0.1, 0.9], [-0.1, 0.4, 0.0, 0.0]]))
    assert divergence.sum(dim=1).tolist() == [2.0, 1.0], "nats a response; nothing behind its end"


def test_whitening_over_two_ranks_is_that_of_the_whole_batch() -> None:
    values = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)) * 3 + 5
    mask = torch.arange(4) < torch.tensor([[4], [2], [1], [3], [4], [2]])
    summed = moments(values[:2], mask[:2]) + moments(values[2:], mask[2:])
    parts = torch.cat([whiten(values[rows], mask[rows], summed) for rows in (slice(2), slice(2, 6))])
    assert float(parts[mask].mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(parts[mask].std(unbiased=False)) == pytest.approx(1.0, rel=1e-5)
    assert not parts[~mask].any()
    alike = whiten(torch.full((2, 4), 3.0), MASK, moments(torch.full((2, 4), 3.0), MASK))
    assert not alike.any(), "a batch without differences says nothing, and nothing infinite"


def test_value_loss_stops_at_the_clip_and_sees_no_padding() -> None:
    old, returns = torch.zeros(1, 3), torch.ones(1, 3)
    mask = torch.tensor([[True, True, False]])
    values = torch.tensor([[0.9, 0.1, 9.0]], requires_grad=True)
    loss, clipped = value_loss(values, old, returns, mask, cliprange=0.2)
    assert float(loss.detach()) == pytest.approx(0.5 * (0.8**2 + 0.9**2)), "0.9 counts as 0.2"
    assert int(clipped) == 1
    loss.backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert values.grad.tolist() == [[0.0, pytest.approx(-0.9), 0.0]]


def test_the_price_of_divergence_follows_what_is_measured() -> None:
    adaptive = KlControl(KlControlConfig(type="adaptive", kl_coef=0.1, target_kl=2.0, horizon=1000))
    adaptive.update(measured_kl=20.0, responses=100)
    assert adaptive.coef == pytest.approx(0.1 * 1.02), "the error counts up to a fifth"
    adaptive.update(measured_kl=1.9, responses=100)
    assert adaptive.coef == pytest.approx(0.102 * (1 - 0.05 * 0.1))
    fixed = KlControl(KlControlConfig(type="fixed", kl_coef=0.1, target_kl=2.0, horizon=1000))
    fixed.update(measured_kl=20.0, responses=100)
    assert fixed.coef == 0.1


def test_a_critic_learns_what_it_is_shown() -> None:
    sizes = ModelConfig(vocab_size=16, max_position=16, hidden_size=16, num_layers=1, num_heads=2)
    critic = Critic(sizes, None)
    critic.load_trunk(initial_state(sizes, 1, 0.3))
    critic.start_phase(Optim(lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0, grad_clip=1.0))
    prompts, mask = pad_left([[1, 4, 5], [1, 6]], 3)
    batch = join(prompts, mask, jagged([torch.tensor([7, 8, 2]), torch.tensor([9, 2])]), 4)
    with torch.no_grad():
        before = critic.values(batch)
    assert not before.any(), "the head begins with 0"
    targets = ValueTargets(before, torch.tensor([[1.0, 1.0, 1.0, 0.0], [-1.0, -1.0, 0.0, 0.0]]))
    errors = [critic.value_step(batch, targets, cliprange=10.0, lr=1e-2)["squared_error"] for _ in range(30)]
    assert errors[0] == pytest.approx(1.0)
    assert errors[-1] < 0.1
    with pytest.raises(RuntimeError):
        Transformer(sizes).load_state_dict(critic.model.state_dict())  # one output is not a vocabulary


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("reward.pool=elsewhere", "reward.pool"),
        ("trainer.reference=borrowed", "trainer.reference"),
        ("algorithm.adv_estimator=grpo", "rollout.n=1"),
        ("critic.ppo_mini_batch_size=3", "critic.ppo_mini_batch_size"),
        ("algorithm.kl_ctrl.kl=1", "kl"),
    ],
)
def test_wrong_overrides_are_refused_by_name(override: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    from examples.ppo.__main__ import main

    assert main([override]) == 2
    assert named in capsys.readouterr().err


def test_a_reward_pool_has_as_many_ranks_as_its_setting_says() -> None:
    shared = load_config()
    assert shared.reward_ranks == shared.global_pool_size == 2
    assert load_config(["reward.pool=reward_pool", "reward.num_workers=4"]).reward_ranks == 4
