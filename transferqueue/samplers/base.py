"""The interface of samplers."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar


class BaseSampler(ABC):
    """Chooses rows for a consumer.

    A sampler runs outside any transaction, on a snapshot of the ready rows. Its attributes are its state: the session
    keeps them per partition and task and gives them back before the next call, in whatever process that is; state and
    consumption marks are committed together. A call whose rows were taken by somebody else meanwhile is repeated on a
    new snapshot with the old state, so `sample` must have no other effects. A call that raises changes nothing.

    Subclasses define `sample`. State that belongs to (partition, task) goes to ``self._states``.
    """

    # Attributes that say how the sampler was configured: no state, so a checkpoint neither holds nor changes them.
    _configuration: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self._states: dict[str, dict[str, Any]] = {}

    @abstractmethod
    def sample(
        self, ready_indexes: list[int], batch_size: int, *args: Any, **kwargs: Any
    ) -> tuple[list[int], list[int]]:
        """Chooses among `ready_indexes` (global indexes, ascending; ready and not consumed by the task).

        Args:
            ready_indexes: what can be had.
            batch_size: how many rows were asked for.
            kwargs: the entries of the caller's `sampling_config`, and `partition`, an object whose
                ``get_custom_meta(indexes)`` gives ``{index: tags}``.

        Returns:
            (rows to hand out, rows to mark consumed); ``([], [])`` when there are not enough.
        """

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[list[int], list[int]]:
        return self.sample(*args, **kwargs)

    def _task_states(self, partition_id: str, task_name: str) -> dict[Any, Any]:
        """The mutable state of one partition and task."""
        if "_states" not in vars(self):  # a subclass need not call our constructor
            self._states = {}
        states: dict[Any, Any] = self._states.setdefault(partition_id, {}).setdefault(task_name, {})
        return states

    def _states_of(self, partition_id: str, task_name: str) -> dict[Any, Any]:
        """The same to look at; makes none where there is none."""
        states: dict[Any, Any] = vars(self).get("_states", {}).get(partition_id, {}).get(task_name, {})
        return states

    def has_cached_result(
        self, partition_id: str, task_name: str, sampling_config: Mapping[str, Any] | None = None
    ) -> bool:
        """Whether the next call with this configuration repeats an answer that is decided already: its rows were handed
        out, or are kept for who asks, so that it needs no other ready rows."""
        return False

    def clear_cache(self, partition_id: str) -> None:
        """Forgets what belongs to a partition."""
        vars(self).get("_states", {}).pop(partition_id, None)

    def save_checkpoint(self) -> dict[str, Any]:
        """A deep copy of the state."""
        return copy.deepcopy({name: value for name, value in vars(self).items() if name not in self._configuration})

    def load_checkpoint(self, state: Mapping[str, Any]) -> None:
        """Takes over a state that `save_checkpoint` gave."""
        vars(self).update(copy.deepcopy(dict(state)))
