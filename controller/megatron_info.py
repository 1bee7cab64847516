"""Where the ranks of a group stand in tensor, pipeline, context and data parallel groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class MegatronInfo:
    """Mixed into a worker group. The ranks are asked once, with ``get_megatron_rank_info`` and
    ``get_megatron_global_info`` of the worker class."""

    _megatron: tuple[list[Any], Any] | None = None

    def call_all(self, method_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        raise NotImplementedError

    def megatron_info(self) -> tuple[list[Any], Any]:
        """The `DistRankInfo` of every rank, and the `DistGlobalInfo` of the group."""
        if self._megatron is None:
            ranks = self.call_all("get_megatron_rank_info", (), {})
            self._megatron = ranks, self.call_all("get_megatron_global_info", (), {})[0]
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
