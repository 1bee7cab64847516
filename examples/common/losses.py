"""The mathematics of GRPO on padded tensors; no process groups, no devices, no data plane.

Sources: advantages and the clipped surrogate from DeepSeekMath (arXiv 2402.03300, section 4.1), the estimator k3
of the KL divergence from J. Schulman, "Approximating KL divergence" (2020). All masks are bool
``[rows, response]``; log-probabilities are float32 of the same shape.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch

_STD_FLOOR = 1e-6


def token_log_probs(logits: torch.Tensor, tokens: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Log-probability of each token ``[rows, response]`` under logits ``[rows, response, vocab]``."""
    log_probs = torch.log_softmax(logits.float() / temperature, dim=-1)
    return log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


def entropy(logits: torch.Tensor) -> torch.Tensor:
    """Entropy in nats of each position of ``[..., vocab]``."""
    log_probs = torch.log_softmax(logits.float(), dim=-1)
    return -(log_probs.exp() * log_probs).sum(dim=-1)


def group_advantages(
    scores: torch.Tensor, groups: Sequence[Hashable], group_size: int, *, norm_by_std: bool
) -> torch.Tensor:
    """Each row's score against its group: ``(score - mean) / std``, the mean and the sample deviation of the group.

    ``scores`` is float32 ``[rows]``. A group whose scores are all equal gets zeros: it says nothing. ValueError when
    a group is not complete in this batch, because its mean would be that of a part.
    """
    members: dict[Hashable, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    broken = {group: len(rows) for group, rows in members.items() if len(rows) != group_size}
    if broken:
        raise ValueError(f"groups of {group_size} expected, these have other sizes in this batch: {broken}")
    advantages = torch.zeros_like(scores)
    for rows in members.values():
        centred = scores[rows] - scores[rows].mean()
        if norm_by_std and group_size > 1:
            deviation = scores[rows].std()
            centred = centred / (deviation + _STD_FLOOR) if deviation > _STD_FLOOR else torch.zeros_like(centred)
        advantages[rows] = centred
    return advantages


def reward_to_go(token_level_rewards: torch.Tensor) -> torch.Tensor:
    """Undiscounted return of each token: the sum of its reward and all later ones, along the last dimension."""
    return token_level_rewards.flip(-1).cumsum(-1).flip(-1)


def k3_divergence(log_probs: torch.Tensor, ref_log_probs: torch.Tensor) -> torch.Tensor:
    """Per-token estimate of KL(policy || reference) that is never negative: ``exp(d) - d - 1``, d = ref - policy."""
    difference = ref_log_probs - log_probs
    return difference.exp() - difference - 1


@dataclass(frozen=True)
class PolicyLoss:
    """Sums over the real tokens of a batch: divide by the number of tokens of the whole (global) mini-batch."""

    loss: torch.Tensor
    clipped: torch.Tensor
    divergence: torch.Tensor


def policy_loss(
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    ref_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip_ratio_low: float,
    clip_ratio_high: float,
    kl_loss_coef: float,
) -> PolicyLoss:
    """Clipped surrogate plus ``kl_loss_coef`` times k3, summed over the tokens of ``mask``."""
    ratio = (log_probs - old_log_probs).exp()
    bounded = ratio.clamp(1 - clip_ratio_low, 1 + clip_ratio_high)
    surrogate = torch.minimum(ratio * advantages, bounded * advantages)
    divergence = k3_divergence(log_probs, ref_log_probs)
    weight = mask.to(log_probs.dtype)
    loss = ((kl_loss_coef * divergence - surrogate) * weight).sum()
    clipped = (ratio * advantages > bounded * advantages) & mask
    return PolicyLoss(loss, clipped.sum().detach(), (divergence * weight).sum().detach())
