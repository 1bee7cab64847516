"""The critic of one rank: a transformer that says one number before each token, and its updates."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from examples.common.batching import PaddedBatch
from examples.common.metrics import Metrics
from examples.common.model import ModelConfig, Transformer
from examples.common.parallel import sum_over
from examples.common.tensor_parallel import TensorParallel
from examples.common.trained_model import TrainedModel
from examples.common.weights import StateDict
from examples.ppo.advantages import value_loss

_HEAD = "head.weight"


class ValueModel(Transformer):
    """The transformer with one output instead of the vocabulary's; it begins with the value 0 for everything."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.head = nn.Linear(config.hidden_size, 1, bias=False)
        nn.init.zeros_(self.head.weight)


@dataclass(frozen=True)
class ValueTargets:
    """Per response token, float32 ``[rows, response]``."""

    old_values: torch.Tensor
    returns: torch.Tensor

    def slice(self, rows: slice) -> ValueTargets:
        """Some of the rows (views)."""
        return ValueTargets(self.old_values[rows], self.returns[rows])


class Critic(TrainedModel):
    """Replicated over the data parallel group; not split."""

    model: ValueModel

    def __init__(self, config: ModelConfig, dp_group: dist.ProcessGroup | None) -> None:
        super().__init__(ValueModel(config), TensorParallel(), dp_group)

    def load_trunk(self, state: StateDict) -> None:
        """Takes over a policy's weights, all but those of its output layer."""
        trunk = {name: weight for name, weight in state.items() if name != _HEAD}
        self.model.load_state_dict({**trunk, _HEAD: torch.zeros_like(self.model.head.weight)})

    def values(self, batch: PaddedBatch) -> torch.Tensor:
        """What the rest of each response is worth before each of its tokens, float32 ``[rows, response]``."""
        return self.response_outputs(batch).squeeze(-1)

    def value_step(self, batch: PaddedBatch, targets: ValueTargets, cliprange: float, lr: float) -> Metrics:
        """One step on the clipped squared error, averaged over the tokens of all ranks."""
        values, mask = self.values(batch), batch.response_mask
        loss, clipped = value_loss(values, targets.old_values, targets.returns, mask, cliprange)
        tokens = sum_over(mask.sum().float().reshape(1), self.dp_group)
        norm = self.step(loss / tokens, lr)
        errors = ((values.detach() - targets.returns).square() * mask).sum()
        sums = torch.stack([loss.detach(), clipped.float(), errors])
        mean = (sum_over(sums, self.dp_group) / tokens).tolist()
        return {"loss": mean[0], "clip_fraction": mean[1], "squared_error": mean[2], "grad_norm": norm}
