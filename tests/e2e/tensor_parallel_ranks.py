"""One GRPO step of the example's policy in one process, and the same on two gloo ranks."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist

from examples.common.batching import PaddedBatch, jagged, join, pad_left
from examples.common.model import ModelConfig, Transformer
from examples.common.policy import PolicyObjective, PolicyTargets, ShardedPolicy
from examples.common.tensor_parallel import TensorParallel
from examples.common.trained_model import Optim
from examples.common.weights import StateDict, gather_state, initial_state
from tests.support.nursery import Nursery

MODEL = ModelConfig(vocab_size=16, max_position=16, hidden_size=16, num_layers=2, num_heads=4)
_ROWS, _PROMPT, _RESPONSE = 8, 5, 6


@dataclass(frozen=True)
class Step:
    """What one rank saw of the step; gradients and weights gathered to the whole model."""

    log_probs: torch.Tensor
    loss: float
    grad_norm: float
    gradient: StateDict
    state: StateDict
    local_parameters: int


def full_step() -> Step:
    """The step in this process."""
    return _step(TensorParallel(), None, slice(None))


def run_ranks(nursery: Nursery, dp: int, tp: int) -> list[Step]:
    """The step on ``dp * tp`` processes, by rank."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [nursery.start(_rank, rank, dp, tp, folder) for rank in range(dp * tp)]
        codes = [process.wait(100) for process in ranks]
        if any(codes):
            raise RuntimeError(f"ranks ended with {codes}")
        return [torch.load(Path(folder) / f"step{rank}", weights_only=False) for rank in range(dp * tp)]


def _rank(pipe: Connection, rank: int, dp: int, tp: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=dp * tp)
    try:
        parallel = TensorParallel(rank, tp, dist.group.WORLD) if tp > 1 else TensorParallel()
        rows = slice(rank * _ROWS // dp, (rank + 1) * _ROWS // dp) if dp > 1 else slice(None)
        step = _step(parallel, dist.group.WORLD if dp > 1 else None, rows)
        torch.save(step, Path(folder) / f"step{rank}")
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _step(tp: TensorParallel, dp_group: dist.ProcessGroup | None, rows: slice) -> Step:
    policy = ShardedPolicy(MODEL, initial_state(MODEL, 1, 0.3), tp, dp_group)
    policy.start_phase(Optim(lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0, grad_clip=0.05))
    batch, targets = _data()
    batch, targets = batch.slice(rows), targets.slice(rows)
    log_probs, _ = policy.log_probs(batch, 1.0, 3)
    metrics = policy.policy_step(
        batch,
        targets,
        PolicyObjective(clip_ratio_low=0.2, clip_ratio_high=0.2, kl_loss_coef=0.1, temperature=1.0),
        1e-2,
    )
    gradients = Transformer(MODEL, tp)
    gradients.load_state_dict({name: p.grad for name, p in policy.model.named_parameters() if p.grad is not None})
    return Step(
        log_probs,
        metrics["loss"],
        metrics["grad_norm"],
        _cloned(gather_state(gradients, tp)),
        _cloned(gather_state(policy.model, tp)),
        sum(parameter.numel() for parameter in policy.model.parameters()),
    )


def _cloned(state: StateDict) -> StateDict:
    return {name: weight.detach().clone() for name, weight in state.items()}


def _data() -> tuple[PaddedBatch, PolicyTargets]:
    generator = torch.Generator().manual_seed(2)

    def tokens(count: int) -> list[int]:
        return torch.randint(3, 16, (count,), generator=generator).tolist()

    prompts, mask = pad_left([[1, *tokens(1 + row % 4)] for row in range(_ROWS)], _PROMPT)
    # The halves differ in tokens: averaging the losses of the ranks instead of the tokens would show.
    responses = jagged([torch.tensor(tokens(1 + row % _RESPONSE)) for row in range(_ROWS)])
    old, ref, advantages = (torch.randn(_ROWS, _RESPONSE, generator=generator) for _ in range(3))
    targets = PolicyTargets(old * 0.3 - 2.0, ref * 0.3 - 2.0, advantages)
    return join(prompts, mask, responses, _RESPONSE), targets
