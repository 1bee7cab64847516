"""Which rows of a batch which shard gets, so that they are read on the node that keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from tensordict import TensorDictBase

from transferqueue.controller.padding import Padding
from transferqueue.metadata import BatchMeta
from transferqueue.workers.batch_rows import split_sizes
from transferqueue.workers.data_proto import DataProto
from transferqueue.workers.row_batch import kind_of
from transferqueue.workers.session_client import client_for
from transferqueue.workers.splitting import batches_of, each_argument

if TYPE_CHECKING:
    from transferqueue.controller.worker_group import WorkerGroup
    from transferqueue.workers.dispatch_mode import DispatchMode

Locality = Literal["off", "shards", "rows"]
Order = npt.NDArray[np.int64]
_UNKNOWN = -1


def checked_locality(locality: Locality) -> Locality:
    """The value. Raises `ValueError` for one that there is not."""
    if locality not in get_args(Locality):
        raise ValueError(f"locality is one of {', '.join(map(repr, get_args(Locality)))}, got {locality!r}")
    return locality


@dataclass(frozen=True)
class Arrangement:
    """In which order rows are dispatched; None: as they came."""

    order: Order | None = None

    def restored(self, result: Any) -> Any:
        """A result that is row for row what was sent, in the order of the caller's batch; another one as it is."""
        if self.order is None:
            return result
        back = np.argsort(self.order, kind="stable")
        kind = kind_of(result)
        if kind is not None:
            return in_order(result, back) if kind.size(result) == len(back) else result
        if type(result) is list and len(result) == len(back):
            return [result[at] for at in back.tolist()]
        if isinstance(result, (np.ndarray, torch.Tensor)) and result.ndim and len(result) == len(back):
            return result[back if isinstance(result, np.ndarray) else torch.from_numpy(back)]
        return result


AS_IT_CAME = Arrangement()


def arranged(
    group: WorkerGroup, mode: DispatchMode, args: Sequence[Any], kwargs: Mapping[str, Any], padding: Padding
) -> tuple[tuple[Any, ...], dict[str, Any], Arrangement]:
    """The arguments of a call that splits rows, with those of every batch in an order in which shards find more of them
    on their nodes; shards have as many rows as without it. Nothing changes where that gains nothing, where a batch is
    of a kind whose rows cannot be chosen, or where ranks or rows are all on one node."""
    as_they_came = tuple(args), dict(kwargs), AS_IT_CAME
    batches = [batch for _, batch, _ in batches_of(args, kwargs)]
    metas = [batch for batch in batches if isinstance(batch, BatchMeta) and batch.size and batch.field_names]
    if not metas or not all(isinstance(batch, (BatchMeta, TensorDictBase, DataProto)) for batch in batches):
        return as_they_came
    client = client_for(metas[0])
    ordinals = client.node_ordinals()
    nodes = [ordinals.get(node_id, _UNKNOWN) for node_id in group.node_ids]
    if len(set(nodes)) < 2:
        return as_they_came
    shards = mode.row_shards(group) if mode.row_shards is not None else group.world_size
    shard_of_rank = mode.shard_of_rank(group) if mode.shard_of_rank else range(group.world_size)
    node_of_shard = _nodes_of_shards(nodes, shard_of_rank, shards)
    total = metas[0].size
    rows = total - padding.added
    if padding.added:
        sizes = [max(0, min(total // shards, rows - shard * (total // shards))) for shard in range(shards)]
    else:
        sizes = split_sizes(rows, shards)
    kept_at = client.row_nodes(metas[0])[:rows]
    arrange = by_rows if group.locality == "rows" else by_shards
    order = arrange(kept_at, sizes, node_of_shard)
    if local_rows(kept_at[order], sizes, node_of_shard) <= local_rows(kept_at, sizes, node_of_shard):
        return as_they_came

    # Pads stay where they are: at the end.
    whole = np.concatenate((order, np.arange(rows, total, dtype=np.int64)))

    def chosen(_: int | str, value: Any) -> Any:
        return in_order(value, whole) if any(value is batch for batch in batches) else value

    new_args, new_kwargs = each_argument(chosen, args, kwargs)
    return new_args, new_kwargs, Arrangement(order)


def in_order(batch: Any, order: Order) -> Any:
    """The rows of a batch in that order."""
    if isinstance(batch, BatchMeta):
        return batch.select_samples(order.tolist())
    if isinstance(batch, DataProto):
        return batch.select_idxs(order)
    if isinstance(batch, TensorDictBase):
        return batch[torch.from_numpy(order)]
    kind = kind_of(batch)
    assert kind is not None  # the caller looked
    return kind.join([kind.take(batch, at, at + 1) for at in order.tolist()])


def local_rows(kept_at: Order, sizes: Sequence[int], node_of_shard: Sequence[int]) -> int:
    """How many rows are read where they are kept."""
    readers = np.repeat(np.asarray(node_of_shard, dtype=np.int64), sizes)
    return int(((kept_at == readers) & (readers != _UNKNOWN)).sum())


def by_rows(kept_at: Order, sizes: Sequence[int], node_of_shard: Sequence[int]) -> Order:
    """Each row to a shard on its node while that has room, the others to what room is left. The order within a shard
    is that of the batch."""
    rows: list[list[int]] = [[] for _ in sizes]
    left: list[int] = []
    room: dict[int, list[int]] = {}
    for shard, node in enumerate(node_of_shard):
        if node != _UNKNOWN:
            room.setdefault(node, []).append(shard)
    for row, node in enumerate(kept_at.tolist()):
        shards = room.get(node, [])
        while shards and len(rows[shards[0]]) >= sizes[shards[0]]:
            shards.pop(0)
        (rows[shards[0]] if shards else left).append(row)
    for shard, size in enumerate(sizes):
        missing = size - len(rows[shard])
        rows[shard] = sorted(rows[shard] + left[:missing])
        left = left[missing:]
    return np.array([row for of_shard in rows for row in of_shard], dtype=np.int64)


def by_shards(kept_at: Order, sizes: Sequence[int], node_of_shard: Sequence[int]) -> Order:
    """Whole shards to other ranks, those with the most rows on a node first: what is balanced about them, such as
    tokens, stays so. Shards of one size change places only."""
    starts = np.cumsum([0, *sizes])
    source = list(range(len(sizes)))
    for size in set(sizes):
        places = [shard for shard in range(len(sizes)) if sizes[shard] == size]
        counts = [
            (count, shard, node)
            for shard in places
            for node, count in Counter(kept_at[starts[shard] : starts[shard + 1]].tolist()).items()
            if node != _UNKNOWN
        ]
        free = list(places)
        waiting = dict.fromkeys(places)
        for _, shard, node in sorted(counts, key=lambda entry: (-entry[0], entry[1], entry[2])):
            if shard not in waiting:
                continue
            # Its own place where that is on the node: what need not move does not.
            fitting = [place for place in free if node_of_shard[place] == node]
            if fitting:
                place = shard if shard in fitting else fitting[0]
                source[place] = shard
                free.remove(place)
                del waiting[shard]
        for place, shard in zip(free, waiting, strict=True):
            source[place] = shard
    return np.concatenate([np.arange(starts[shard], starts[shard + 1], dtype=np.int64) for shard in source])


def _nodes_of_shards(nodes: Sequence[int], shard_of_rank: Sequence[int], shards: int) -> list[int]:
    """The node of each shard: the one with most of the ranks that work on it."""
    found: list[Counter[int]] = [Counter() for _ in range(shards)]
    for node, shard in zip(nodes, shard_of_rank, strict=True):
        found[shard][node] += 1
    return [counts.most_common(1)[0][0] if counts else _UNKNOWN for counts in found]
