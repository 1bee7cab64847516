"""TensorDicts put together from columns that are known to fit."""

from __future__ import annotations

import copy
import pickle

import torch
from tensordict import TensorDict

from transferqueue.codec import field_tree
from transferqueue.codec.field_tree import new_batch


def test_a_batch_put_together_is_the_constructor_s() -> None:
    assert field_tree._state_of_a_batch() is not None  # of the version that is pinned: else the slow way is taken
    entries = {"x": torch.arange(6).view(3, 2), "in": TensorDict({"y": torch.ones(3, 4)}, [3])}
    for inner in ((), (2,)):
        mine = {"x": entries["x"]} if inner else entries
        made, wanted = new_batch(dict(mine), 3, inner), TensorDict(dict(mine), batch_size=[3, *inner])
        assert vars(made).keys() == vars(wanted).keys()
        assert {name: type(value) for name, value in vars(made).items()} == {
            name: type(value) for name, value in vars(wanted).items()
        }
        assert made.batch_size == wanted.batch_size
        assert (made == wanted).all()
        assert not made.is_locked
        assert made.names == wanted.names
        for other in (made.clone(), copy.deepcopy(made), pickle.loads(pickle.dumps(made)), made[:2], made.reshape(-1)):
            assert isinstance(other, TensorDict)
        made.lock_()
        assert made.is_locked
        assert not new_batch(dict(mine), 3, inner).is_locked  # nothing is shared


def test_a_batch_does_not_take_the_dict_over() -> None:
    entries = {"x": torch.zeros(2)}
    batch = new_batch(entries, 2)
    entries["y"] = torch.zeros(2)
    assert list(batch.keys()) == ["x"]
