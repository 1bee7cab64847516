"""The scores of answers: reasoning-gym's own, on the last token of each response."""

from __future__ import annotations

import torch
from tensordict import NonTensorData, TensorDict

from examples.common.batching import jagged_like, lengths_of, strings_of
from examples.common.config import PolicyConfig
from examples.common.demonstrations import final_answer
from examples.common.task import ChainSumTask, task_config_of
from examples.common.tokenizer import CharTokenizer
from transferqueue.workers import Dispatch, Worker, register


class ScoreWorker(Worker):
    """Scores answers; a process of its own, without the model."""

    def __init__(self, config: PolicyConfig) -> None:
        torch.set_num_threads(1)
        self.config = config
        self.task = ChainSumTask(task_config_of(config.data))
        self.tokenizer = CharTokenizer()

    @register(dispatch_mode=Dispatch.DP_COMPUTE_PROTO)
    def compute_rm_score(self, batch: TensorDict) -> TensorDict:
        """`rm_scores`: jagged float32 like `responses`, the score on the last token, 0 before it."""
        responses = batch["responses"]
        texts = self.tokenizer.decode_batch([row.tolist() for row in responses.unbind()])
        truths = strings_of(batch, "ground_truth")
        scores = [self.task.score(final_answer(text), truth) for text, truth in zip(texts, truths, strict=True)]
        lengths = lengths_of(responses)
        return TensorDict(
            {
                "rm_scores": score_on_last_token(torch.tensor(scores), lengths),
                "reward/mean": NonTensorData(_mean(scores)),
                "reward/accuracy": NonTensorData(_mean([score == 1.0 for score in scores])),
                "response/worked_share": NonTensorData(_mean(["=" in text for text in texts])),
                "response/length": NonTensorData(float(lengths.double().mean())),
            },
            batch_size=batch.batch_size,
        )


def score_on_last_token(scores: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Float32 jagged rows of these lengths: the score at the end, 0 elsewhere."""
    width = int(lengths.max()) if len(lengths) else 0
    padded = torch.zeros(len(scores), width)
    padded[torch.arange(len(scores)), lengths - 1] = scores.float()
    return jagged_like(padded, lengths)


def _mean(values: list[float] | list[bool]) -> float:
    return sum(values) / len(values) if values else 0.0
