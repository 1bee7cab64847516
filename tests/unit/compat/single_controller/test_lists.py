"""The import lists for programs written for verl: every name is there, is the native object, and nothing else is."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from transferqueue.compat import single_controller
from transferqueue.controller import LocalWorkerGroup
from transferqueue.workers import DataProto, Worker

PACKAGE = "transferqueue.compat.single_controller"
NATIVE = ("transferqueue.workers", "transferqueue.controller")
BASE = ["ClassWithInitArgs", "ResourcePool", "Worker", "WorkerGroup"]
NAMES = {
    "": BASE,
    "base": BASE,
    "base.decorator": [
        "DISPATCH_MODE_FN_REGISTRY",
        "Dispatch",
        "Execute",
        "MAGIC_ATTR",
        "_check_dispatch_mode",
        "_check_execute_mode",
        "_concat_data_proto_or_future",
        "_split_args_kwargs_data_proto",
        "collect_all_to_all",
        "collect_dp_compute",
        "collect_dp_compute_data_proto",
        "collect_lazy_compute_data_proto",
        "collect_megatron_compute",
        "collect_megatron_compute_data_proto",
        "collect_megatron_pp_as_dp",
        "collect_megatron_pp_as_dp_data_proto",
        "collect_nd_compute",
        "collect_nd_compute_dataproto",
        "dispatch_all_to_all",
        "dispatch_dp_compute",
        "dispatch_dp_compute_data_proto",
        "dispatch_dp_compute_data_proto_with_func",
        "dispatch_lazy_compute_data_proto",
        "dispatch_megatron_compute",
        "dispatch_megatron_compute_data_proto",
        "dispatch_megatron_pp_as_dp",
        "dispatch_megatron_pp_as_dp_data_proto",
        "dispatch_nd_compute",
        "dispatch_nd_compute_dataproto",
        "dispatch_one_to_all",
        "dummy_direct_rollout_call",
        "get_predefined_dispatch_fn",
        "get_predefined_execute_fn",
        "make_nd_compute_dataproto_dispatch_fn",
        "register",
        "register_dispatch_mode",
        "update_dispatch_mode",
    ],
    "base.worker": [
        "Dispatch",
        "DistGlobalInfo",
        "DistRankInfo",
        "Execute",
        "Worker",
        "WorkerHelper",
        "register",
    ],
    "base.worker_group": [
        "ClassWithInitArgs",
        "Dispatch",
        "MAGIC_ATTR",
        "ResourcePool",
        "WorkerGroup",
        "get_predefined_dispatch_fn",
        "get_predefined_execute_fn",
    ],
    "ray": [
        "RayClassWithInitArgs",
        "RayResourcePool",
        "RayWorkerGroup",
        "ResourcePoolManager",
        "SubRayResourcePool",
        "create_colocated_worker_cls",
        "create_colocated_worker_cls_fused",
    ],
    "ray.base": [
        "ClassWithInitArgs",
        "DataProto",
        "Dispatch",
        "FusedWorker",
        "MAGIC_ATTR",
        "RayClassWithInitArgs",
        "RayResourcePool",
        "RayWorkerGroup",
        "ResourcePool",
        "ResourcePoolManager",
        "SubRayResourcePool",
        "Worker",
        "WorkerGroup",
        "create_colocated_worker_cls",
        "create_colocated_worker_cls_fused",
        "create_colocated_worker_raw_cls",
        "extract_pg_from_exist",
        "merge_resource_pool",
        "sort_placement_group_by_node_ip",
        "split_resource_pool",
    ],
}


def module(name: str) -> ModuleType:
    return importlib.import_module(f"{PACKAGE}.{name}".rstrip("."))


def home_of(value: Any) -> str:
    """The module that defines it; of a class of ours that is an enum's member or a constant, that of its class."""
    return str(getattr(value, "__module__", None) or type(value).__module__)


@pytest.mark.parametrize(("name", "names"), NAMES.items(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_name_is_the_native_object(name: str, names: list[str]) -> None:
    listed = module(name)
    assert sorted(listed.__all__) == sorted(names)
    for each in names:
        value = getattr(listed, each)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert home_of(value).startswith(NATIVE), each
            assert getattr(importlib.import_module(value.__module__), value.__name__) is value


def test_the_same_name_is_the_same_object_everywhere() -> None:
    found: dict[str, Any] = {}
    for name, names in NAMES.items():
        for each in names:
            assert found.setdefault(each, getattr(module(name), each)) is getattr(module(name), each)


def test_the_lists_have_no_code() -> None:
    files = sorted(Path(single_controller.__file__).parent.rglob("*.py"))
    assert len(files) == len(NAMES)
    for file in files:
        docstring, *body = ast.parse(file.read_text()).body
        assert isinstance(docstring, ast.Expr)
        assert isinstance(body.pop(), ast.Assign), f"{file} ends with __all__"
        assert body, file
        assert all(isinstance(statement, ast.ImportFrom) for statement in body), file


def test_a_mode_of_a_program_splits_and_joins_by_the_helpers() -> None:
    decorator: Any = module("base.decorator")
    batch, dispatch = TensorDict({"x": torch.arange(5)}, [5]), decorator._split_args_kwargs_data_proto
    (pieces,), named = dispatch(3, batch, other=DataProto(batch))
    assert [piece["x"].tolist() for piece in pieces] == [[0, 1], [2, 3], [4]]
    assert [piece.batch["x"].tolist() for piece in named["other"]] == [[0, 1], [2, 3], [4]]
    assert decorator._concat_data_proto_or_future(pieces)["x"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(AssertionError, match="other"):
        dispatch(3, batch, other=7)

    class Adder(Worker):
        @decorator.register(
            dispatch_mode={
                "dispatch_fn": lambda group, *args, **kwargs: dispatch(group.world_size, *args, **kwargs),
                "collect_fn": lambda group, output: decorator._concat_data_proto_or_future(output),
            }
        )
        def add(self, batch: Any, other: Any) -> Any:
            return TensorDict({"y": batch["x"] + other["x"]}, batch_size=batch.batch_size)

    with LocalWorkerGroup(Adder, 2) as group:
        assert group.add(batch, other=batch)["y"].tolist() == [0, 2, 4, 6, 8]
