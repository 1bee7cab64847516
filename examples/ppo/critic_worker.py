"""A critic rank: one replica of the value model."""

from __future__ import annotations

import torch
from tensordict import NonTensorData, TensorDict

from examples.common.batching import jagged_like, lengths_of, pad_right, padded_of
from examples.common.mesh_place import join_mesh
from examples.common.metrics import Metrics
from examples.common.model_setup import model_config_of
from examples.common.schedule import linear_warm_up
from examples.common.trained_model import Optim
from examples.common.weights import StateDict, gather_state, unflatten_state
from examples.ppo.config import PpoConfig
from examples.ppo.critic import Critic, ValueTargets
from transferqueue.workers import Dispatch, Worker, make_nd_compute_dataproto_dispatch_fn, register

MESH = "critic"
_BY_MESH = make_nd_compute_dataproto_dispatch_fn(mesh_name=MESH)


class CriticWorker(Worker):
    """Stages `values` and `update_critic`. A mesh of its own: every process is a replica, whatever the actor's are."""

    def __init__(self, config: PpoConfig) -> None:
        torch.set_num_threads(1)
        self.config = config
        place = join_mesh(self.world_size, 1)
        self._register_dispatch_collect_info(MESH, dp_rank=place.dp_rank, is_collect=place.is_collect)
        self.critic = Critic(model_config_of(config), place.dp_group)
        self.updates = 0

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_weights(self, weights: TensorDict) -> None:
        """Starts from the policy: one row, `parameters` float32 ``[1, number of parameters]``; a fresh optimizer."""
        self._start_from(unflatten_state(weights["parameters"][0], model_config_of(self.config)))

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def start_from(self, role: str) -> None:
        """The same with the weights that another role of this process has: roles reach each other by name."""
        actor = self.fused_worker_dict[role]
        self._start_from(gather_state(actor.policy.model, actor.policy.tp))

    @register(dispatch_mode=_BY_MESH)
    def compute_values(self, batch: TensorDict) -> TensorDict:
        """`values`: float32, jagged like `responses`."""
        padded = padded_of(batch, self.config.data.max_response_length)
        with torch.no_grad():
            values = self.critic.values(padded)
        mean = float(values[padded.response_mask].mean())
        return TensorDict(
            {
                "values": jagged_like(values, lengths_of(batch["responses"])),
                "critic/value_mean": NonTensorData(mean),
            },
            batch_size=batch.batch_size,
        )

    @register(dispatch_mode=_BY_MESH)
    def update_critic(self, batch: TensorDict) -> dict[str, float]:
        """Updates over the rows in mini-batches; the mean metrics, the same on every rank."""
        settings, width = self.config.critic, self.config.data.max_response_length
        padded = padded_of(batch, width)
        targets = ValueTargets(*(pad_right(batch[name], width) for name in ("values", "returns")))
        lr = settings.optim.lr * linear_warm_up(self.updates, settings.optim.lr_warmup_steps)
        self.updates += 1
        rows = settings.ppo_mini_batch_size * self.config.actor_rollout_ref.rollout.n // self.world_size
        history: list[Metrics] = []
        for _ in range(settings.ppo_epochs):
            for start in range(0, padded.input_ids.shape[0], rows):
                part = slice(start, start + rows)
                history.append(
                    self.critic.value_step(padded.slice(part), targets.slice(part), settings.cliprange_value, lr)
                )
        return {f"critic/{name}": sum(entry[name] for entry in history) / len(history) for name in history[0]}

    def _start_from(self, policy_state: StateDict) -> None:
        settings = self.config.critic
        self.critic.load_trunk(policy_state)
        optim = settings.optim
        self.critic.start_phase(Optim(optim.lr, optim.betas, optim.weight_decay, settings.grad_clip))
