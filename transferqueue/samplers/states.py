"""A sampler's state as the index and checkpoints hold it: without pickle where the values are plain.

First byte 1: a tree of plain values (see `codec.trees`), which the built-in samplers' states are. Anything else is a
pickle, and unpickling runs code of whoever wrote it.
"""

from __future__ import annotations

import pickle
from typing import Any

from transferqueue.errors import CorruptSegmentError, PickleNotAllowedError

_TREE = b"\x01"


def encode_state(state: Any) -> bytes:
    """Raises what pickling it raises, where it takes a pickle."""
    from transferqueue.codec.trees import NotATree, pack_tree  # brings torch, which only who fetches needs

    try:
        packed = pack_tree(state)
    except NotATree:
        return pickle.dumps(state, protocol=5)
    return pickle.dumps(state, protocol=5) if packed.buffers else _TREE + packed.skeleton


def needs_pickle(state: bytes) -> bool:
    """Whether reading it runs code of its writer."""
    return bool(state) and not state.startswith(_TREE)


def decode_state(state: bytes, *, allow_pickle: bool) -> Any:
    """What `encode_state` was given; `state` is not empty.

    Raises:
        PickleNotAllowedError: it is a pickle, and they are not allowed. CorruptSegmentError: it is nothing at all.
    """
    if needs_pickle(state):
        if not allow_pickle:
            raise PickleNotAllowedError(
                "the state of this task's sampler is a pickle, and unpickling runs code of whoever wrote it. If you "
                "trust every process of this session, set allow_pickle=True",
                field=None,
            )
        try:
            return pickle.loads(state)
        except Exception as error:  # bytes of the index, and code of the state's classes
            raise CorruptSegmentError(
                f"the state of a sampler cannot be unpickled: {error!r}; reset the task (reset_consumption) to begin "
                "anew"
            ) from error
    import torch

    from transferqueue.codec.packed_rows import RowBuffers
    from transferqueue.codec.trees import TreeReader

    with TreeReader() as reader:
        return reader.read(memoryview(state)[1:], RowBuffers(torch.empty(0, dtype=torch.uint8), []))
