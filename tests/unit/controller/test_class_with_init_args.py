"""A class with its arguments, and the options that its actors get."""

from __future__ import annotations

from typing import Any

from transferqueue.controller import ClassWithInitArgs, RayClassWithInitArgs


class Thing:
    def __init__(self, value: int, *, scale: int = 1) -> None:
        self.value = value * scale


def test_it_builds_what_it_holds() -> None:
    held = ClassWithInitArgs(Thing, 3, scale=2)
    assert (held.cls, held.args, held.kwargs) == (Thing, (3,), {"scale": 2})
    assert held().value == 6
    assert held() is not held()


def test_options_and_resources_reach_the_actor_and_the_request_of_the_group_stays() -> None:
    held = RayClassWithInitArgs(Thing, 1)
    request: dict[str, Any] = {"num_cpus": 1, "resources": {"NPU": 0.1}}
    assert held.options_over(request) == request
    held.set_additional_resource({"memory": 2**20, "licence": 1})
    held.update_options({"max_concurrency": 2, "num_cpus": 3})
    assert held.options_over(request) == {
        "num_cpus": 3,
        "resources": {"NPU": 0.1, "licence": 1},
        "memory": 2**20,
        "max_concurrency": 2,
    }
    held.set_additional_resource({"resources": {"licence": 2}, "accelerator_type": "H100"})
    assert held.options_over({})["resources"] == {"licence": 2}
    assert held.options_over({})["accelerator_type"] == "H100"
    assert "memory" not in held.options_over({}), "what was set before is replaced"
    assert request == {"num_cpus": 1, "resources": {"NPU": 0.1}}
