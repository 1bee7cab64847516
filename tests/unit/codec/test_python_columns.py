"""Rows of Python objects: which need pickle, and where their tensors' bytes go."""

from __future__ import annotations

import collections
import datetime
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit.codec.compare import assert_same_rows, jagged, put_get, same
from tests.unit.codec.fake_native import FakeReservation
from transferqueue.codec import plan_put
from transferqueue.codec.schema import read_schema
from transferqueue.errors import PickleNotAllowedError, SchemaMismatchError

Point = collections.namedtuple("Point", "x y")

WITHOUT_PICKLE: dict[str, list[Any]] = {
    "multi-modal": [{"pixel_values": torch.rand(3, 4, 4), "grid": (1, 2), "index": np.int64(3)}, None],
    "arrays": [
        np.arange(6).reshape(2, 3),
        np.array(["a", "bb"]),
        np.array(1.5),
        np.zeros((0, 3)),
        np.array([1, 2], ">i2"),
    ],
    "scalars": [np.float32(1.5), np.str_("é"), np.datetime64("2020-01-01T00:00"), np.bool_(True), np.bytes_(b"a\0")],
    "structured": [np.array([(1, "a")], dtype=[("n", "<i4"), ("s", "<U2")]), np.array([(1, "a")], dtype="i4,U2")[0]],
    "tensors among others": ["a", torch.tensor(3), torch.ones(0, 2), torch.ones(2, 3).t(), torch.tensor([1j]).conj()],
    "sub-byte": [(torch.arange(4, dtype=torch.uint8).view(torch.uint4)[::2],), 1],
    "tuples in tuples": [((1, (2, [3, (4,)])),), ()],
    "any keys": [{(1, 2): {3: None}, None: (torch.ones(2),)}],
    "large ints": [2**64, -(2**100), [2**200]],
}


@pytest.mark.parametrize("rows", WITHOUT_PICKLE.values(), ids=list(WITHOUT_PICKLE))
def test_readable_without_pickle(rows: list[Any]) -> None:
    assert not read_schema(plan_put({"x": rows}).layouts[0].schema).pickled
    for copy_below in (1, 1 << 30):
        assert_same_rows(put_get({"x": rows}, copy_below=copy_below)["x"], rows)


def test_needs_pickle_and_says_so() -> None:
    rows = [
        datetime.date(2020, 1, 1),
        {"a": {1, 2}},
        Point(1, torch.ones(2)),
        "plain",
        torch.nn.Parameter(torch.ones(2)),
    ]
    assert read_schema(plan_put({"x": rows}).layouts[0].schema).pickled
    out = put_get({"x": rows}, allow_pickle=True)["x"]
    assert out[:2] == rows[:2]
    assert type(out[2]) is Point
    assert same(out[2].y, torch.ones(2))
    assert out[3] == "plain"
    assert type(out[4]) is torch.nn.Parameter
    with pytest.raises(PickleNotAllowedError, match="'x'"):
        put_get({"x": rows})
    # Refused by the schema, before any row is looked at, also when the rows asked for need none.
    with pytest.raises(PickleNotAllowedError, match="'x'"):
        put_get({"x": rows}, rows=[3])


def test_bytes_of_tensors_and_arrays_are_never_in_a_pickle() -> None:
    big = 1 << 20
    rows = [[{i}, torch.zeros(big // 4), np.zeros(big // 8), torch.zeros(big // 4, 2)[:, 0]] for i in range(2)]
    plan = plan_put({"x": rows})
    reservation = FakeReservation(plan.nbytes)
    plan.write(reservation)  # type: ignore[arg-type]
    assert 6 * big < plan.nbytes < 6 * big + 16_000
    assert reservation.copied_nbytes < plan.nbytes
    out = put_get({"x": rows}, allow_pickle=True)["x"]
    assert_same_rows([row[1:] for row in out], [row[1:] for row in rows])
    out[0][1].fill_(1)
    out[0][2].fill(1)
    assert (out[1][1] == 0).all()


def test_a_tensor_that_a_row_holds_twice_is_one_tensor_again() -> None:
    shared = torch.zeros(4)
    row = [{1}, shared, shared]
    out = put_get({"x": [row]}, allow_pickle=True)["x"][0]
    assert out[1] is out[2]


def test_gradients_do_not_travel() -> None:
    leaf = torch.ones(2, requires_grad=True)
    out = put_get({"x": [{"t": leaf, "u": leaf * 2}], "y": [[{1}, leaf * 2]]}, allow_pickle=True)
    assert not out["x"][0]["t"].requires_grad
    assert same(out["x"][0]["u"], torch.full((2,), 2.0))
    assert not out["y"][0][1].requires_grad


def test_what_pickle_refuses_names_field_row_and_type() -> None:
    with pytest.raises(SchemaMismatchError, match=r"row 1 of field 'x', a generator") as caught:
        plan_put({"x": ["a", (i for i in range(3))]})
    assert caught.value.fields == ("x",)


def test_nested_tensors_inside_rows() -> None:
    out = put_get({"x": [{"j": jagged(1, 2)}]}, allow_pickle=True)["x"][0]["j"]
    assert_same_rows(out, jagged(1, 2).unbind())
