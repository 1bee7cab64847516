"""What a rank of the trained policy does: one shard of it and of its frozen reference, on a mesh of DP x TP ranks."""

from __future__ import annotations

import torch
from tensordict import NonTensorData, TensorDict

from examples.common.batching import jagged_like, join, lengths_of, pad_right, padded_of
from examples.common.config import PolicyConfig
from examples.common.mesh_place import join_mesh
from examples.common.metrics import Metrics
from examples.common.model_setup import initial_state_of, model_config_of
from examples.common.parallel import sum_over
from examples.common.policy import PolicyObjective, PolicyTargets, ShardedPolicy
from examples.common.schedule import linear_decay, linear_warm_up
from examples.common.tokenizer import PAD_ID
from examples.common.trained_model import Optim
from examples.common.weights import flatten_state, gather_state
from transferqueue.workers import Dispatch, Worker, make_nd_compute_dataproto_dispatch_fn, register

MESH = "actor"
_BY_MESH = make_nd_compute_dataproto_dispatch_fn(mesh_name=MESH)


class PolicyWorker(Worker):
    """Log-probabilities of policy and reference, updates, the supervised warm-up, and the sending end of the weights.

    All ranks of a replica get the same rows and compute together; only its first tensor parallel rank collects.
    """

    def __init__(self, config: PolicyConfig) -> None:
        torch.set_num_threads(1)
        self.config = config
        actor = config.actor_rollout_ref.actor
        self.place = join_mesh(actor.data_parallel_size, actor.tensor_parallel_size)
        self._register_dispatch_collect_info(MESH, dp_rank=self.place.dp_rank, is_collect=self.place.is_collect)
        self.policy = self._new_policy()
        self.updates = 0

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def start_warm_up(self) -> None:
        """A fresh optimizer for the supervised warm-up."""
        settings, optim = self.config.trainer.warm_up, self.config.actor_rollout_ref.actor.optim
        self.policy.start_phase(Optim(settings.lr, optim.betas, optim.weight_decay, settings.grad_clip))

    @register(dispatch_mode=_BY_MESH)
    def warm_up(self, batch: TensorDict, *, first_step: int, total_steps: int) -> dict[str, float]:
        """Supervised steps over the rows once, in their order: `prompts` and the shown `responses`."""
        data, settings = self.config.data, self.config.trainer.warm_up
        prompts = batch["prompts"]
        padded = join(prompts, prompts != PAD_ID, batch["responses"], data.max_response_length)
        rows = settings.batch_size // self.config.actor_rollout_ref.actor.data_parallel_size
        losses = []
        for step, start in enumerate(range(0, len(prompts), rows), start=first_step):
            lr = settings.lr * linear_decay(step, total_steps)
            losses.append(self.policy.supervised_step(padded.slice(slice(start, start + rows)), lr)["loss"])
        return {"warm_up/loss": sum(losses) / max(1, len(losses))}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def start_reinforcement(self) -> None:
        """Freezes the policy as the reference and starts a fresh optimizer."""
        actor = self.config.actor_rollout_ref.actor
        self._freeze_reference()
        self.policy.start_phase(Optim(actor.optim.lr, actor.optim.betas, actor.optim.weight_decay, actor.grad_clip))

    @register(dispatch_mode=_BY_MESH)
    def compute_log_prob(self, batch: TensorDict) -> TensorDict:
        """`old_log_probs`: the policy's log-probability of each response token, jagged float32."""
        micro_batch_size = self.config.actor_rollout_ref.rollout.log_prob_micro_batch_size_per_rank
        return self._log_probs(self.policy, batch, "old_log_probs", micro_batch_size)

    @register(dispatch_mode=_BY_MESH)
    def compute_ref_log_prob(self, batch: TensorDict) -> TensorDict:
        """`ref_log_prob`: the same of the frozen reference."""
        micro_batch_size = self.config.actor_rollout_ref.ref.log_prob_micro_batch_size_per_rank
        return self._log_probs(self.reference, batch, "ref_log_prob", micro_batch_size)

    @register(dispatch_mode=_BY_MESH)
    def update_actor(self, batch: TensorDict) -> dict[str, float]:
        """Updates on the clipped surrogate over the rows in mini-batches; the mean metrics, the same on every rank."""
        actor, rollout = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout
        padded = padded_of(batch, self.config.data.max_response_length)
        width = self.config.data.max_response_length
        targets = PolicyTargets(
            *(pad_right(batch[name], width) for name in ("old_log_probs", "ref_log_prob", "advantages"))
        )
        objective = PolicyObjective(
            clip_ratio_low=actor.clip_ratio_low,
            clip_ratio_high=actor.clip_ratio_high,
            kl_loss_coef=actor.kl_loss_coef if actor.use_kl_loss else 0.0,
            temperature=rollout.temperature,
        )
        lr = actor.optim.lr * linear_warm_up(self.updates, actor.optim.lr_warmup_steps)
        self.updates += 1
        rows = actor.ppo_mini_batch_size * rollout.n // actor.data_parallel_size
        history: list[Metrics] = []
        for _ in range(actor.ppo_epochs):
            for start in range(0, padded.input_ids.shape[0], rows):
                part = slice(start, start + rows)
                history.append(self.policy.policy_step(padded.slice(part), targets.slice(part), objective, lr))
        return {f"actor/{name}": sum(entry[name] for entry in history) / len(history) for name in history[0]}

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def export_weights(self, version: TensorDict) -> TensorDict | None:
        """The whole model as one row: `parameters` float32 ``[1, number of parameters]``.

        Gathers the shards (a collective); rank 0 returns them, the others nothing.
        """
        state = gather_state(self.policy.model, self.policy.tp)
        if self.rank != 0:
            return None
        return TensorDict({"parameters": flatten_state(state).unsqueeze(0)}, batch_size=version.batch_size)

    def _new_policy(self) -> ShardedPolicy:
        """This rank's shard of the model with its first weights."""
        place = self.place
        return ShardedPolicy(model_config_of(self.config), initial_state_of(self.config), place.tp, place.dp_group)

    def _freeze_reference(self) -> None:
        """Keeps the policy's weights as those of the reference, in a second model."""
        self.reference = self._new_policy()
        self.reference.model.requires_grad_(False)
        self.reference.model.load_state_dict(self.policy.model.state_dict())

    def _log_probs(self, policy: ShardedPolicy, batch: TensorDict, name: str, micro_batch_size: int) -> TensorDict:
        padded = padded_of(batch, self.config.data.max_response_length)
        temperature = self.config.actor_rollout_ref.rollout.temperature
        log_probs, entropies = policy.log_probs(padded, temperature, micro_batch_size)
        sums = torch.stack([(entropies * padded.response_mask).sum(), padded.response_mask.sum().float()])
        entropy, tokens = sum_over(sums, policy.dp_group).tolist()
        return TensorDict(
            {
                name: jagged_like(log_probs, lengths_of(batch["responses"])),
                f"{name}/entropy": NonTensorData(entropy / tokens),
            },
            batch_size=batch.batch_size,
        )
