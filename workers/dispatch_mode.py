"""One way of spreading a call over a group, as a declaration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from transferqueue.workers.group_view import GroupView
from transferqueue.workers.write_back import WriteBack


@dataclass(frozen=True)
class DispatchMode(dict[str, Any]):
    """How the arguments of a call reach the ranks, how their outputs come back, and who writes rows back.

    Args:
        dispatch_fn: ``(group, *args, **kwargs) -> (args, kwargs)`` of `PerRank` or `Broadcast` values (or lists as long
            as the group).
        collect_fn: ``(group, outputs) -> result``; `outputs` has one element per rank.
        writes_back: which ranks write their outputs back and report them; the others return empty metadata.
        row_shards: into how many shards the mode splits the rows of a batch; None for a mode that does not split.
        shard_of_rank: which of the shards each rank works on; None: rank i on shard i.
        joined_ranks: for a mode whose result is the joined rows: the ranks whose outputs these are, in the order of the
            rows. A call that does not block then returns a future of them, which can be an argument of another call.
            None: the result is the list of outputs, and a call that does not block returns a list of references.
        rank_zero_only: rank 0 alone runs the method.
        takes_pads: whether batches may be padded; False for a mode of metrics, in which pads would count.

    Also a read-only dict of the same names (``mode["dispatch_fn"]``), the form in which programs hold these pairs.
    """

    dispatch_fn: Callable[..., Any]
    collect_fn: Callable[[Any, Any], Any]
    writes_back: WriteBack
    row_shards: Callable[[GroupView], int] | None = None
    shard_of_rank: Callable[[GroupView], Sequence[int]] | None = None
    joined_ranks: Callable[[GroupView], Sequence[int]] | None = None
    rank_zero_only: bool = False
    takes_pads: bool = True

    def __post_init__(self) -> None:
        super().update({field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def of(cls, mode: Mapping[str, Any], writes_back: WriteBack) -> DispatchMode:
        """From a mapping with `dispatch_fn` and `collect_fn`; `writes_back` where it does not say.

        Raises `ValueError` for entries that a mode does not have.
        """
        known = [field.name for field in fields(cls)]
        unknown = sorted(map(repr, set(mode) - set(known)))
        if unknown:
            raise ValueError(f"a dispatch mode has no entry {', '.join(unknown)}; it has {', '.join(known)}")
        return cls(**{"writes_back": writes_back, **mode})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


def _refuse(mode: DispatchMode, *args: object, **kwargs: object) -> Any:
    raise TypeError("a dispatch mode does not change; make another one, or call update_dispatch_mode")


# What the attributes say would no longer be what the entries say. Set here as these overrides have no signature that
# fits those of a dict.
for _name in ("__setitem__", "__delitem__", "__ior__", "update", "setdefault", "pop", "popitem", "clear"):
    setattr(DispatchMode, _name, _refuse)
