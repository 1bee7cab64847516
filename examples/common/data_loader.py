"""Batches of prompts, and of prompts with shown answers, as the TensorDicts that are put."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from examples.common.batching import jagged, pad_left
from examples.common.config import PolicyConfig
from examples.common.demonstrations import demonstrations
from examples.common.task import ChainSumTask, Problem, task_config_of
from examples.common.tokenizer import CharTokenizer

_WARM_UP_STREAM = 0
_TRAIN_STREAM = 1


class DataLoader:
    """The controller's side of the data: it tokenizes and hands out batches, seeded."""

    def __init__(self, config: PolicyConfig) -> None:
        self._config = config
        self._task = ChainSumTask(task_config_of(config.data))
        self._tokenizer = CharTokenizer()
        self._train = self._task.train_stream(_TRAIN_STREAM)
        self._warm_up = self._task.train_stream(_WARM_UP_STREAM)

    def train_batch(self, step: int) -> TensorDict:
        """`prompts` int64 ``[rows, max_prompt_length]``, `uid` and `ground_truth` strings; each prompt `n` times."""
        problems = list(itertools.islice(self._train, self._config.data.train_batch_size))
        return self._prompt_batch(problems, self._config.actor_rollout_ref.rollout.n, f"step{step}")

    def held_out_batch(self) -> TensorDict:
        """The held-out problems once each, with the fields of :meth:`train_batch`."""
        return self._prompt_batch(self._task.held_out, 1, "val")

    def warm_up_batch(self, rows: int, worked_share: float, seed: int) -> TensorDict:
        """`prompts` and jagged `responses` that show right answers, see `demonstrations`."""
        shown = list(itertools.islice(demonstrations(self._warm_up, worked_share, seed), rows))
        answers = [torch.tensor(self._tokenizer.encode_response(answer)) for _, answer in shown]
        return TensorDict(
            {"prompts": self._prompts([problem for problem, _ in shown]), "responses": jagged(answers)},
            batch_size=[rows],
        )

    def _prompt_batch(self, problems: Sequence[Problem], copies: int, prefix: str) -> TensorDict:
        prompts = self._prompts(problems).repeat_interleave(copies, dim=0)
        uids = [f"{prefix}-{i}" for i in range(len(problems)) for _ in range(copies)]
        truths = [problem.ground_truth for problem in problems for _ in range(copies)]
        return TensorDict(
            {"prompts": prompts, "uid": string_column(uids), "ground_truth": string_column(truths)},
            batch_size=[len(prompts)],
        )

    def _prompts(self, problems: Sequence[Problem]) -> torch.Tensor:
        encoded = [self._tokenizer.encode_prompt(problem.prompt) for problem in problems]
        return pad_left(encoded, self._config.data.max_prompt_length)[0]


def string_column(values: Sequence[str]) -> NonTensorStack:
    """One string per row, also where all are equal."""
    return NonTensorStack(*(NonTensorData(value) for value in values))
