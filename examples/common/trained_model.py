"""A model that is trained: split over the tensor parallel group, replicated over the data parallel one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist

from examples.common.batching import PaddedBatch
from examples.common.model import Transformer
from examples.common.parallel import clip_gradients, sum_gradients
from examples.common.tensor_parallel import TensorParallel


@dataclass(frozen=True)
class Optim:
    """AdamW and the clipping of the gradient's norm."""

    lr: float
    betas: tuple[float, float]
    weight_decay: float
    grad_clip: float


class TrainedModel:
    """This rank's shard of a model, and its optimizer.

    Every method that trains is called on all ranks of both groups with the same number of mini-batches.
    """

    def __init__(self, model: Transformer, tp: TensorParallel, dp_group: dist.ProcessGroup | None) -> None:
        self.model = model
        self.tp = tp
        self.dp_group = dp_group
        self._optimizer: torch.optim.AdamW | None = None
        self._optim: Optim | None = None

    def start_phase(self, optim: Optim) -> None:
        """A fresh optimizer: the warm-up and the reinforcement learning have nothing to tell each other's moments."""
        self._optim = optim
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=optim.lr, betas=optim.betas, weight_decay=optim.weight_decay
        )

    def response_outputs(self, batch: PaddedBatch) -> torch.Tensor:
        """What the model says before each response token, ``[rows, response, outputs]``: logits, for a policy."""
        width = batch.responses.shape[1]
        outputs: torch.Tensor = self.model(
            batch.input_ids[:, :-1], batch.position_ids[:, :-1], batch.attention_mask[:, :-1]
        )
        return outputs[:, -width:]

    def step(self, loss: torch.Tensor, lr: float) -> float:
        """Backward, gradients summed over the data parallel ranks and clipped, one update; the norm before."""
        if self._optimizer is None or self._optim is None:
            raise RuntimeError("start_phase was not called: there is no optimizer")
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        sum_gradients(self.model.parameters(), self.dp_group)
        norm = clip_gradients(self.model, self.tp, self._optim.grad_clip)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        return norm
