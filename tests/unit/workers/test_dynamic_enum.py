"""Enums that grow."""

from __future__ import annotations

import copy
import pickle

import pytest

from transferqueue.workers.dispatch_modes import Dispatch
from transferqueue.workers.dynamic_enum import DynamicEnum
from transferqueue.workers.execute import Execute


class Colour(DynamicEnum):
    pass


RED = Colour.register("red")


def test_members_are_found_by_attribute_name_and_iteration() -> None:
    assert Colour.RED is Colour["RED"] is RED
    assert list(Colour) == [RED]
    assert RED in Colour
    assert "RED" in Colour
    assert "RED" not in Execute
    assert (RED.name, RED.value, repr(RED)) == ("RED", 0, "Colour.RED")


def test_unknown_and_taken_names() -> None:
    with pytest.raises(AttributeError, match="Execute has no member 'SOME'; it has ALL, RANK_ZERO"):
        _ = Execute.SOME
    with pytest.raises(KeyError, match="SOME"):
        Execute["SOME"]
    with pytest.raises(ValueError, match="already"):
        Colour.register("RED")
    with pytest.raises(ValueError, match="no name"):
        Colour.register("two words")


def test_a_member_is_the_same_object_after_pickling_and_copying() -> None:
    for member in Dispatch:
        assert pickle.loads(pickle.dumps(member)) is member
        assert copy.deepcopy(member) is member


def test_a_process_that_did_not_register_a_member_makes_it_when_it_unpickles_one() -> None:
    data = pickle.dumps(Colour.register("blue"))
    del Colour._members["BLUE"]
    assert pickle.loads(data) is Colour.BLUE
