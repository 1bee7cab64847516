"""The stages of one GRPO step: whose method, which fields it reads, which it adds to the same rows."""

from __future__ import annotations

from examples.common.stage import SEQUENCE_FIELDS, Stage

GENERATE = Stage("gen", "rollout", "generate_sequences", ("prompts",), ("responses", "attention_mask", "position_ids"))
OLD_LOG_PROB = Stage("old_log_prob", "actor", "compute_log_prob", SEQUENCE_FIELDS, ("old_log_probs",))
REF_LOG_PROB = Stage("ref", "actor", "compute_ref_log_prob", SEQUENCE_FIELDS, ("ref_log_prob",))
REWARD = Stage("reward", "reward", "compute_rm_score", ("responses", "ground_truth"), ("rm_scores",))
ADVANTAGE = Stage(
    "adv", "reward", "compute_advantage", ("rm_scores", "uid"), ("token_level_rewards", "advantages", "returns")
)
UPDATE_ACTOR = Stage(
    "update_actor",
    "actor",
    "update_actor",
    (*SEQUENCE_FIELDS, "old_log_probs", "ref_log_prob", "advantages"),
    (),
)

TRAIN_STAGES = (GENERATE, OLD_LOG_PROB, REF_LOG_PROB, REWARD, ADVANTAGE, UPDATE_ACTOR)
EVAL_STAGES = (GENERATE, REWARD)
