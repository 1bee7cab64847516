"""From scores and values to advantages, on padded tensors; no process groups, no devices, no data plane.

Sources: generalized advantage estimation from Schulman et al. (arXiv 1506.02438, equation 16), the divergence as a
part of the reward from Ziegler et al. (arXiv 1909.08593, section 2). Everything is float32 ``[rows, response]``, masks
are bool of that shape and true from the left.
"""

from __future__ import annotations

import torch

_STD_FLOOR = 1e-8


def penalised_rewards(
    scores: torch.Tensor, log_probs: torch.Tensor, ref_log_probs: torch.Tensor, mask: torch.Tensor, kl_coef: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards of the tokens, ``score - kl_coef * (log_prob - ref_log_prob)``, and that difference in nats a token.

    The difference is the plain estimate of the divergence: unbiased, negative for some tokens.
    """
    divergence = torch.where(mask, log_probs - ref_log_probs, torch.zeros_like(log_probs))
    return scores - kl_coef * divergence, divergence


def gae(
    rewards: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, gamma: float, lam: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns (what a critic should have said): ``returns = advantages + values``; 0 outside the mask.

    ``values[:, t]`` is the value before token t; after a row's last token nothing more comes.
    """
    weight = mask.to(rewards.dtype)
    values = values * weight
    advantages = torch.zeros_like(rewards)
    following = torch.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        next_value = values[:, t + 1] if t + 1 < rewards.shape[1] else torch.zeros(len(rewards))
        surprise = rewards[:, t] + gamma * next_value - values[:, t]
        following = (surprise + gamma * lam * following) * weight[:, t]
        advantages[:, t] = following
    return advantages, advantages + values


def moments(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """``[count, sum, sum of squares]`` of what the mask shows, float64: those of several ranks add up."""
    chosen = values[mask].double()
    return torch.stack([torch.tensor(float(len(chosen)), dtype=torch.float64), chosen.sum(), chosen.square().sum()])


def whiten(values: torch.Tensor, mask: torch.Tensor, summed: torch.Tensor) -> torch.Tensor:
    """Mean 0 and deviation 1 by the `moments` of the whole batch (of several ranks, perhaps); 0 outside the mask."""
    count, total, squares = summed.tolist()
    mean = total / max(1.0, count)
    variance = max(0.0, squares / max(1.0, count) - mean * mean)
    whitened = (values - mean) / (variance + _STD_FLOOR) ** 0.5
    return torch.where(mask, whitened, torch.zeros_like(values))


def value_loss(
    values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, mask: torch.Tensor, cliprange: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Half the squared error, the larger of plain and clipped to `cliprange` around the old values; summed over the
    tokens of the mask. Also how many tokens were clipped.
    """
    bounded = old_values + (values - old_values).clamp(-cliprange, cliprange)
    plain, clipped = (values - returns).square(), (bounded - returns).square()
    loss = 0.5 * (torch.maximum(plain, clipped) * mask.to(values.dtype)).sum()
    return loss, ((clipped > plain) & mask).sum().detach()
