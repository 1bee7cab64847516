"""Jagged tensors put together from parts are what torch's constructor makes, or torch's constructor is used."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from transferqueue.codec import jagged_assembly
from transferqueue.codec.jagged_assembly import jagged_assembler
from transferqueue.codec.nested_tensors import construct_jagged, jagged_over


@pytest.fixture
def undecided() -> Iterator[None]:
    """The choice between the two ways is made anew."""
    jagged_assembler.cache_clear()
    yield
    jagged_assembler.cache_clear()


def parts(ragged_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(12.0).view(6, 2).movedim(0, ragged_dim), torch.tensor([0, 1, 3, 6])


@pytest.mark.parametrize("ragged_dim", [0, 1])
def test_every_use_gives_what_torchs_own_gives(ragged_dim: int) -> None:
    assemble = jagged_assembler()
    if assemble is None:
        pytest.skip("this torch has other jagged tensors inside")
    values, offsets = parts(ragged_dim)
    ours = assemble(values, offsets, ragged_dim + 1, 1, 3)
    theirs = construct_jagged(values.detach(), offsets, ragged_dim + 1, 1, 3)
    assert type(ours) is type(theirs)
    assert set(vars(ours)) == set(vars(theirs))
    assert ours.shape == theirs.shape  # the same ragged size: their offsets are one object
    uses: list[Any] = [
        lambda x: x.values(),
        lambda x: x.offsets(),
        lambda x: (x * 2 + x).values(),
        lambda x: x.unbind()[1],
        lambda x: x.to_padded_tensor(0.0) if ragged_dim == 0 else x.clone().values(),
        lambda x: torch.nn.functional.relu(x).values(),
        lambda x: x.to(torch.float64).values(),
        lambda x: pickle.loads(pickle.dumps(x)).values(),
        lambda x: torch.tensor([x._min_seqlen, x._max_seqlen, x._ragged_idx, x.size(0), x.dim()]),
        lambda x: x.detach().requires_grad_().values(),
        lambda x: torch.ones_like(x).values(),
    ]
    for number, use in enumerate(uses):
        assert torch.equal(use(ours), use(theirs)), number
    assert torch.equal((ours * theirs).values(), (values * values).contiguous())


def test_equal_offsets_have_one_ragged_size_and_others_have_not() -> None:
    values, offsets = parts(0)
    mask = jagged_over((values > 3).float(), offsets, ragged_dim=0, shortest=1, longest=3)
    product = mask * jagged_over(values, offsets, ragged_dim=0, shortest=1, longest=3)
    assert torch.equal(product.values(), values * (values > 3))
    apart = jagged_over(values, offsets.clone(), ragged_dim=0, shortest=1, longest=3)
    assert apart.shape != mask.shape


def test_gradients_flow() -> None:
    values, offsets = parts(0)
    leaf = jagged_over(values, offsets, ragged_dim=0, shortest=1, longest=3).requires_grad_()
    (leaf * leaf).values().sum().backward()
    assert torch.equal(leaf.grad.values(), 2 * values)


def test_a_torch_with_another_inside_gets_its_own_constructor(undecided: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_inside() -> Any:
        raise ImportError("no such module in this torch")

    with monkeypatch.context() as patched:
        patched.setattr(jagged_assembly, "_assembler", other_inside)
        assert jagged_assembler() is None
    values, offsets = parts(0)
    made = jagged_over(values, offsets, ragged_dim=0, shortest=1, longest=3)
    assert torch.equal(made.values(), values)
    assert (made._min_seqlen, made._max_seqlen) == (1, 3)


def test_a_torch_that_keeps_more_in_them_gets_its_own_constructor(
    undecided: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    constructed = jagged_assembly._constructed

    def with_more(*parts: Any) -> Any:
        made = constructed(*parts)
        made._something_new = 1
        return made

    monkeypatch.setattr(jagged_assembly, "_constructed", with_more)
    assert jagged_assembler() is None
