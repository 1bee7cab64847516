"""The package's names: all there, lazily, and the same for a type checker as at run time."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import transferqueue as tq
from tests.support.sessions import run_python


def names_for_type_checkers() -> dict[str, str]:
    found = {}
    for node in ast.walk(ast.parse(Path(tq.__file__).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("transferqueue."):
            found |= {alias.name: node.module for alias in node.names}
    return found


def test_every_name_is_there_and_the_two_lists_agree() -> None:
    assert names_for_type_checkers() == tq._MODULE_OF
    for name in tq.__all__:
        assert getattr(tq, name) is not None
    assert set(tq.__all__) <= set(dir(tq))
    assert tq.__version__


def test_functions_of_the_module_have_the_names_of_the_clients_methods() -> None:
    for name, module in tq._MODULE_OF.items():
        if module in ("transferqueue.kv", "transferqueue.calls"):
            assert callable(getattr(tq.TransferQueueClient, name))
            assert getattr(tq, name).__name__ == name
            assert getattr(tq, name).__doc__


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="kv_putt"):
        _ = tq.kv_putt  # type: ignore[attr-defined]


@pytest.mark.timeout(60)
def test_importing_is_light() -> None:
    code = "import sys, transferqueue\nprint(sorted({'torch', 'ray', 'tensordict', 'numpy'} & set(sys.modules)))"
    assert run_python(code) == "[]\n"
