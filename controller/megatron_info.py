"""Where the ranks of a group stand in tensor, pipeline, context and data parallel groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from transferqueue.workers.errors import DispatchError

_QUESTIONS = ("get_megatron_rank_info", "get_megatron_global_info")


class MegatronInfo:
    """Mixed into a worker group. The ranks are asked once, with ``get_megatron_rank_info`` and
    ``get_megatron_global_info`` of the worker class."""

    _user_class: type
    _megatron: tuple[list[Any], Any] | None = None

    def call_all(self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        raise NotImplementedError

    def megatron_info(self) -> tuple[list[Any], Any]:
        """The `DistRankInfo` of every rank, and the `DistGlobalInfo` of the group. `DispatchError` for a worker class
        that does not tell."""
        if self._megatron is None:
            missing = [name for name in _QUESTIONS if not callable(getattr(self._user_class, name, None))]
            if missing:
                raise DispatchError(
                    f"a Megatron dispatch mode asks every rank for its place, and {self._user_class.__name__} has no "
                    f"{' and no '.join(missing)}: define them, returning DistRankInfo and DistGlobalInfo, or use "
                    "make_nd_compute_dataproto_dispatch_fn(mesh_name)"
                )
            ranks = self.call_all(_QUESTIONS[0], (), {})
            self._megatron = ranks, self.call_all(_QUESTIONS[1], (), {})[0]
        return self._megatron

    def get_megatron_rank_info(self, rank: int) -> Any:
        """The `DistRankInfo` of one rank. `IndexError` for a rank that is not there."""
        ranks = self.megatron_info()[0]
        if not 0 <= rank < len(ranks):
            raise IndexError(f"rank {rank} of a group of {len(ranks)} ranks")
        return ranks[rank]

    def get_megatron_global_info(self) -> Any:
        """The `DistGlobalInfo` of the group."""
        return self.megatron_info()[1]
