"""A LazyStack is the NonTensorStack that would have been built: every use gives the same as with the eager one."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict
from tensordict.tensorclass import is_non_tensor
from torch.utils import _pytree

from tests.unit.codec.compare import same
from transferqueue.codec import plan_put
from transferqueue.codec.field_tree import new_batch
from transferqueue.codec.lazy_stack import LazyStack, eager_stack, lazy_stack

VALUES: dict[str, list[Any]] = {
    "strings": ["a", "bb", "a", "é"],
    "equal strings": ["a", "a", "a", "a"],
    "mixed": [None, {"k": [1, 2]}, torch.ones(2), [3]],
    "lists": [[1, 2], [3, 4], [5, 6], [7, 8]],
}


def batch_of(column: Any) -> TensorDict:
    """As `decode` builds it: the constructor's checks would already be a use."""
    batch: TensorDict = new_batch({"u": column, "x": torch.arange(4)}, 4)
    return batch


def set_row(batch: TensorDict) -> Any:
    batch["u"][1] = "changed"  # the linked list of td["u"] writes through
    return batch["u"]


def update(batch: TensorDict) -> Any:
    batch.update({"u": NonTensorStack("p", "q", "r", "s")})
    return batch["u"]


def save_and_load(batch: TensorDict) -> Any:
    stream = io.BytesIO()
    torch.save(batch, stream)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


USES: dict[str, Callable[[TensorDict], Any]] = {
    "by key": lambda td: td["u"],
    "tolist": lambda td: td.get("u").tolist(),
    "iteration": lambda td: sorted(td["u"], key=str),
    "members": lambda td: list(td.get("u")),
    "len": lambda td: len(td.get("u")),
    "sizes": lambda td: (td.get("u").batch_size, td.get("u").shape, td.get("u").ndim, td.get("u").numel()),
    "device": lambda td: td.get("u").device,
    "row": lambda td: td[2]["u"],
    "row of the column": lambda td: td.get("u")[2],
    "slice": lambda td: td[1:3],
    "mask": lambda td: td[torch.tensor([True, False, True, False])],
    "list index": lambda td: td[[3, 0, 0]],
    "tensor index": lambda td: td[torch.tensor([3, 0])],
    "chunk": lambda td: td.chunk(2),
    "split": lambda td: td.split(3),
    "unbind": lambda td: td.unbind(0),
    "cat": lambda td: torch.cat([td, td.clone()]),
    "cat with another": lambda td: torch.cat([td, batch_of(NonTensorStack("w", "x", "y", "z"))]),
    "stack": lambda td: torch.stack([td, td.clone()]),
    "reshape": lambda td: td.reshape(2, 2),
    "gather of rows": lambda td: torch.stack([td[3], td[1]]),
    "clone": lambda td: td.clone(),
    "shallow clone": lambda td: td.clone(recurse=False),
    "copy": lambda td: copy.copy(td),
    "deepcopy": lambda td: copy.deepcopy(td),
    "pickle": lambda td: pickle.loads(pickle.dumps(td)),
    "pickle of the column": lambda td: pickle.loads(pickle.dumps(td.get("u"))),
    "torch.save": save_and_load,
    "to_dict": lambda td: td.to_dict(),
    "to_tensordict": lambda td: td.to_tensordict(),
    "select": lambda td: td.select("u"),
    "exclude": lambda td: td.exclude("u"),
    "items": lambda td: dict(td.items()),
    "apply": lambda td: td.apply(lambda t: t + 1),
    "to": lambda td: td.to("cpu"),
    "contiguous": lambda td: td.contiguous(),
    "lock": lambda td: td.lock_(),
    "row written": set_row,
    "update": update,
    "setitem of rows": lambda td: td.__setitem__(slice(0, 2), td[2:4].clone()) or td,
    "is_non_tensor": lambda td: (is_non_tensor(td.get("u")), td._has_non_tensor),
    "repr of the column": lambda td: repr(td.get("u")),
    "batch in a batch": lambda td: TensorDict({"in": td}, [4])["in", "u"],
    "in a new batch": lambda td: TensorDict({"v": td.get("u")}, [4]),
    "as an entry of a new batch": lambda td: TensorDict({"v": td["u"]}, [4]),
    "tree_map": lambda td: _pytree.tree_map(lambda leaf: leaf, td),
    "put again": lambda td: [len(plan_put(td).layouts), plan_put(td).nbytes],
    "equality": lambda td: (td == td.clone()).get("x"),
}


def plain(value: Any) -> Any:
    """Types, sizes and values, with tensordict's containers opened."""
    if isinstance(value, NonTensorStack):
        return ["NonTensorStack", list(value.batch_size), plain(value.tolist())]
    if isinstance(value, NonTensorData):
        return ["NonTensorData", list(value.batch_size), plain(value.data)]
    if isinstance(value, TensorDict) or hasattr(value, "batch_size"):
        return [list(value.batch_size), {str(key): plain(item) for key, item in value.items()}]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [plain(item) for item in value]]
    return value


@pytest.mark.parametrize("use", USES.values(), ids=list(USES))
@pytest.mark.parametrize("values", VALUES.values(), ids=list(VALUES))
def test_every_use_gives_what_the_eager_stack_gives(values: list[Any], use: Callable[[TensorDict], Any]) -> None:
    for make in (lambda: lazy_stack(list(values), 4), lambda: lazy_stack(None, 4, lambda: list(values))):
        try:
            wanted = plain(use(batch_of(eager_stack(values))))
        except Exception as error:
            with pytest.raises(type(error)):
                use(batch_of(make()))
            continue
        assert same(plain(use(batch_of(make()))), wanted)


def test_taking_the_list_makes_no_members_and_reads_once() -> None:
    reads = []

    def read() -> list[str]:
        reads.append(1)
        return ["a", "b"]

    stack = lazy_stack(None, 2, read)
    batch = new_batch({"u": stack}, 2)
    assert batch.batch_size == (2,)
    assert not reads
    assert list(batch["u"]) == ["a", "b"] == batch["u"]
    assert plan_put(batch).n_rows == 2
    assert "tensordicts" not in object.__getattribute__(stack, "__dict__")
    assert len(stack) == 2
    assert type(stack) is NonTensorStack
    assert len(reads) == 1
    assert list(batch["u"]) == ["a", "b"]


def test_what_becomes_of_it_is_an_ordinary_stack() -> None:
    lazy, eager = lazy_stack(["a", "b"], 2), eager_stack(["a", "b"])
    assert isinstance(lazy, NonTensorStack)
    lazy.unbind(0)
    assert type(lazy) is type(eager)
    assert vars(lazy).keys() == vars(eager).keys()
    assert len(pickle.dumps(lazy)) == pytest.approx(len(pickle.dumps(eager)), abs=16)
    assert b"transferqueue" not in pickle.dumps(lazy_stack(["a", "b"], 2))  # a reader needs only tensordict


def test_a_list_taken_out_is_the_readers_own() -> None:
    stack = lazy_stack(["a", "b"], 2)
    stack.tolist().append("c")
    assert stack.tolist() == ["a", "b"]


def test_an_error_while_reading_is_raised_where_the_column_is_used() -> None:
    def read() -> list[str]:
        raise OSError("gone")

    stack = lazy_stack(None, 2, read)
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            stack.tolist()
        with pytest.raises(OSError, match="gone"):
            stack[0]


@pytest.mark.timeout(60)
def test_many_threads_touch_it_first_at_once() -> None:
    for _ in range(50):
        stack = lazy_stack(None, 64, lambda: [f"u{i}" for i in range(64)])
        start = threading.Barrier(4)
        seen: list[Any] = []

        def touch(use: Callable[[Any], Any], stack: Any = stack, start: Any = start, seen: Any = seen) -> None:
            start.wait()
            seen.append(use(stack))

        uses: list[Callable[[Any], Any]] = [
            lambda s: s.tolist(),
            lambda s: [s[i].data for i in range(64)],
            lambda s: [member.data for member in s.unbind(0)],
            lambda s: list(s.tolist()),
        ]
        threads = [threading.Thread(target=touch, args=(use,)) for use in uses]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [[f"u{i}" for i in range(64)]] * 4


def test_no_rows() -> None:
    stack = lazy_stack([], 0)
    assert stack.batch_size == (0,)
    assert stack.tolist() == []


def test_only_the_names_that_answer_by_themselves_keep_it_lazy() -> None:
    assert type(lazy_stack(["a"], 1)) is LazyStack
    stack = lazy_stack(["a"], 1)
    assert stack.batch_size == (1,)
    assert type(stack) is LazyStack
    assert stack.keys() is not None
    assert type(stack) is NonTensorStack
