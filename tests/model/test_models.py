"""The protocols, searched exhaustively: every model holds, and none of its mutants does. See README.md."""

from __future__ import annotations

import pytest

from tests.model import checker

MODELS = checker.models()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("model", MODELS)
def test_model_holds(model: str) -> None:
    verdict = checker.check(model)
    assert verdict.errors == 0, verdict.output
    # A model whose processes are stuck at the first step would hold, too.
    assert verdict.states > 10_000, verdict.output


@pytest.mark.timeout(300)
@pytest.mark.parametrize("model", MODELS)
def test_every_mutant_is_found(model: str) -> None:
    """A model that checks nothing has mutants that pass."""
    named = checker.mutants(model)
    assert sorted(named.values()) == list(range(1, len(named) + 1)), named
    survivors = {}
    for name, number in named.items():
        verdict = checker.check(model, number)
        if not verdict.first.startswith("pan:1: assertion violated"):
            survivors[name] = verdict.output
    assert not survivors, survivors


def test_the_page_lists_every_model() -> None:
    page = (checker.FOLDER / "README.md").read_text()
    assert [model for model in MODELS if f"`{model}.pml`" not in page] == []
