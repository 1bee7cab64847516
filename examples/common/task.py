"""The task: reasoning-gym's ``chain_sum`` with small numbers, and its own scorer as the reward.

reasoning-gym makes entry ``i`` of a dataset from ``seed + i``, so two seeds closer together than the size of
the data share entries; and with small numbers the same sum turns up under many seeds. The held-out split is
therefore a set of *expressions*, fixed by its seed, and the training stream leaves those expressions out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import reasoning_gym

from examples.common.config import DataConfig

_DATASET = "chain_sum"
_STREAM_STRIDE = 1 << 24
"""Distance between the seeds of two streams: more entries than any run of this example draws."""


@dataclass(frozen=True)
class TaskConfig:
    """Which sums: number of terms and of digits per term, and the seed of the held-out split."""

    min_terms: int
    max_terms: int
    min_digits: int
    max_digits: int
    held_out_size: int
    seed: int


def task_config_of(data: DataConfig) -> TaskConfig:
    """The part of the configuration that defines the task."""
    return TaskConfig(
        min_terms=data.min_terms,
        max_terms=data.max_terms,
        min_digits=data.min_digits,
        max_digits=data.max_digits,
        held_out_size=data.val_size,
        seed=data.seed,
    )


@dataclass(frozen=True)
class Problem:
    """One sum: ``12+7-5=`` and its result ``14``."""

    prompt: str
    ground_truth: str


def _problem_of(entry: dict[str, Any]) -> Problem:
    # The sentence around the expression is the same in every entry and carries nothing to learn from; it would
    # make every sequence seven times as long.
    expression = str(entry["metadata"]["expression"]).replace(" ", "")
    return Problem(prompt=f"{expression}=", ground_truth=str(entry["answer"]))


class ChainSumTask:
    """Train and held-out problems by seed, and the score of an answer."""

    def __init__(self, config: TaskConfig) -> None:
        self.config = config
        self._scorer = self._dataset(seed=0, size=1)
        self.held_out = self._draw_held_out()
        self._held_out_prompts = frozenset(problem.prompt for problem in self.held_out)

    def _dataset(self, seed: int, size: int) -> Any:
        return reasoning_gym.create_dataset(
            _DATASET,
            seed=seed,
            size=size,
            min_terms=self.config.min_terms,
            max_terms=self.config.max_terms,
            min_digits=self.config.min_digits,
            max_digits=self.config.max_digits,
        )

    def _stream(self, number: int) -> Iterator[Problem]:
        base = (self.config.seed * 1024 + number + 1) * _STREAM_STRIDE
        dataset = self._dataset(seed=base, size=_STREAM_STRIDE)
        for i in range(_STREAM_STRIDE):
            yield _problem_of(dataset[i])

    def _draw_held_out(self) -> tuple[Problem, ...]:
        chosen: dict[str, Problem] = {}
        for drawn, problem in enumerate(self._stream(0)):
            chosen.setdefault(problem.prompt, problem)
            if len(chosen) == self.config.held_out_size:
                return tuple(chosen.values())
            if drawn > 100 * self.config.held_out_size:
                break
        raise ValueError(
            f"data.val_size={self.config.held_out_size} is more different sums than the task has "
            f"(found {len(chosen)}); allow more terms or digits, or hold out fewer"
        )

    def train_stream(self, number: int) -> Iterator[Problem]:
        """Endless training problems of stream ``number`` (0, 1, ...); none of them is held out."""
        for problem in self._stream(number + 1):
            if problem.prompt not in self._held_out_prompts:
                yield problem

    def score(self, answer: str, ground_truth: str) -> float:
        """reasoning-gym's own score in [0, 1]: 1 for the right number, part credit where it is inside the answer."""
        return float(self._scorer.score_answer(answer, {"answer": ground_truth}))
