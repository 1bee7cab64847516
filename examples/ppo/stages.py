"""The stages of one PPO step: whose method, which fields it reads, which it adds to the same rows."""

from __future__ import annotations

from examples.common.stage import SEQUENCE_FIELDS, Stage
from examples.ppo.config import PpoConfig
from transferqueue.controller import Role

# A group of each role, named after it.
ACTOR, CRITIC, REWARD = str(Role.ActorRolloutRef), str(Role.Critic), str(Role.RewardModel)

GENERATE = Stage("gen", ACTOR, "generate_sequences", ("prompts",), ("responses", "attention_mask", "position_ids"))
SCORE = Stage("reward", REWARD, "compute_rm_score", ("responses", "ground_truth"), ("rm_scores",))
OLD_LOG_PROB = Stage("old_log_prob", ACTOR, "compute_log_prob", SEQUENCE_FIELDS, ("old_log_probs",))
REF_INSIDE = Stage("ref", ACTOR, "compute_ref_log_prob", SEQUENCE_FIELDS, ("ref_log_prob",))
REF_SWITCHED = Stage("ref", ACTOR, "compute_log_prob", SEQUENCE_FIELDS, ("ref_log_prob",))
VALUES = Stage("values", CRITIC, "compute_values", SEQUENCE_FIELDS, ("values",))
ADVANTAGE_FIELDS = ("rm_scores", "old_log_probs", "ref_log_prob")
ADVANTAGE_OUTPUTS = ("token_level_rewards", "advantages", "returns")
GAE = Stage("adv", REWARD, "compute_advantage", (*ADVANTAGE_FIELDS, "values"), ADVANTAGE_OUTPUTS)
GROUP_ADVANTAGE = Stage("adv", REWARD, "compute_advantage", (*ADVANTAGE_FIELDS, "uid"), ADVANTAGE_OUTPUTS)
UPDATE_CRITIC = Stage("update_critic", CRITIC, "update_critic", (*SEQUENCE_FIELDS, "values", "returns"), ())
UPDATE_ACTOR = Stage(
    "update_actor", ACTOR, "update_actor", (*SEQUENCE_FIELDS, "old_log_probs", "ref_log_prob", "advantages"), ()
)


def stages_of(config: PpoConfig, step: int) -> list[Stage]:
    """The stages of that step in order; at first only the critic learns."""
    reference = REF_INSIDE if config.trainer.reference == "inside" else REF_SWITCHED
    if not config.needs_critic:
        return [GENERATE, SCORE, OLD_LOG_PROB, reference, GROUP_ADVANTAGE, UPDATE_ACTOR]
    stages = [GENERATE, SCORE, OLD_LOG_PROB, reference, VALUES, GAE, UPDATE_CRITIC]
    return stages if step <= config.critic.warm_up_steps else [*stages, UPDATE_ACTOR]
