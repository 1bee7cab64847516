"""What `help` shows of the public names."""

from __future__ import annotations

import inspect
import pydoc
import typing

import pytest
import torch
from tensordict import TensorDict

import transferqueue as tq
from tests.support.sessions import embedded
from transferqueue.controller import Dispatch, Execute

CALLS = [name for name, module in tq._MODULE_OF.items() if module in ("transferqueue.calls", "transferqueue.kv")]


def shown(thing: object) -> str:
    return pydoc.render_doc(thing, renderer=pydoc.plaintext)


@pytest.mark.parametrize("name", CALLS)
def test_signatures_are_those_of_a_users_call(name: str) -> None:
    function, method = getattr(tq, name), getattr(tq.TransferQueueClient, name)
    signature = inspect.signature(function)
    assert "self" not in signature.parameters
    assert list(inspect.signature(method).parameters) == ["self", *signature.parameters]
    assert "Steps" not in shown(function) + shown(method)
    assert inspect.iscoroutinefunction(function) == inspect.iscoroutinefunction(method) == name.startswith("async_")
    assert method.__qualname__ == f"TransferQueueClient.{name}"


def test_the_return_type_is_that_of_the_result() -> None:
    assert inspect.signature(tq.get_meta).return_annotation == "BatchMeta"
    assert typing.get_type_hints(tq.get_meta)["return"] is tq.BatchMeta
    assert typing.get_type_hints(tq.TransferQueueClient.async_get_data)["return"] is TensorDict
    assert typing.get_type_hints(tq.kv_put)["return"] is tq.KVBatchMeta


def test_wrong_arguments_are_refused_under_the_public_name() -> None:
    with embedded():
        with pytest.raises(TypeError, match=r"^TransferQueueClient\.wait\(\) takes"):
            tq.wait("p", "x")  # type: ignore[misc]
        with pytest.raises(TypeError, match=r"^TransferQueueClient\.put\(\) got an unexpected keyword"):
            tq.put(TensorDict({"x": torch.zeros(1)}, [1]), partition="p")  # type: ignore[call-arg]


def test_help_names_nothing_that_is_not_public() -> None:
    assert "current_session" not in shown(tq.get_client)


def test_members_of_enums_are_listed() -> None:
    for kind in (Dispatch, Execute):
        assert not [member.name for member in kind if f"`{member.name}`" not in (kind.__doc__ or "")]
