"""Which devices a rank sees, told by environments and by what Ray would say."""

from __future__ import annotations

import pickle

import pytest

from transferqueue.workers import DeviceVisibilityError
from transferqueue.workers.devices import (
    ASCEND,
    CUDA,
    HIP,
    ROCR,
    OwnDevice,
    own_device,
    unify_visible_devices,
    visible_devices_variable,
)

NOSET_CUDA = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
NOSET_ASCEND = "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, {}),
        ({CUDA: "0,1"}, {CUDA: "0,1"}),
        ({HIP: "2"}, {CUDA: "2"}),
        ({ROCR: "3,4"}, {CUDA: "3,4"}),
        ({HIP: "0,1", CUDA: "0, 1"}, {CUDA: "0,1"}),
        ({HIP: "", ROCR: "", CUDA: "1"}, {HIP: "", ROCR: "", CUDA: "1"}),
        ({HIP: "1", CUDA: ""}, {CUDA: "1"}),
        ({ASCEND: "5"}, {ASCEND: "5"}),
    ],
)
def test_settings_of_amd_become_those_that_torch_reads(given: dict[str, str], left: dict[str, str]) -> None:
    environment = dict(given)
    unify_visible_devices(environment)
    assert environment == left
    unify_visible_devices(environment)
    assert environment == left


@pytest.mark.parametrize("given", [{HIP: "0", CUDA: "1"}, {ROCR: "0", CUDA: "1"}, {ROCR: "0", HIP: "1"}])
def test_settings_that_conflict_are_refused_with_both_values(given: dict[str, str]) -> None:
    environment = dict(given)
    with pytest.raises(DeviceVisibilityError) as caught:
        unify_visible_devices(environment)
    assert environment == given
    for name, value in given.items():
        assert f"{name}={value!r}" in str(caught.value)
    assert isinstance(caught.value, (ValueError, AssertionError))
    assert pickle.loads(pickle.dumps(caught.value)).variables == given


def test_rocr_counts_first_so_equal_values_conflict_too() -> None:
    with pytest.raises(DeviceVisibilityError, match="counts within the first"):
        unify_visible_devices({ROCR: "0", HIP: "0"})


def test_the_variable_of_the_machine() -> None:
    assert visible_devices_variable({}) == CUDA
    assert visible_devices_variable({ASCEND: "1"}) == ASCEND
    assert visible_devices_variable({ASCEND: "1", CUDA: "0"}) == CUDA


@pytest.mark.parametrize(
    ("environment", "assigned", "device"),
    [
        ({}, {}, None),
        ({NOSET_CUDA: "1"}, {}, None),
        ({NOSET_CUDA: "1"}, {"GPU": []}, None),
        ({CUDA: "3"}, {"GPU": ["3"]}, OwnDevice(0, alone=True)),
        ({ASCEND: "3"}, {"NPU": ["3"]}, OwnDevice(0, alone=True)),
        ({NOSET_CUDA: "1"}, {"GPU": ["3"]}, OwnDevice(3, alone=False)),
        ({NOSET_CUDA: "1"}, {"GPU": [5, 3]}, OwnDevice(3, alone=False)),
        ({NOSET_CUDA: "1", CUDA: "4,5,6,7"}, {"GPU": ["6"]}, OwnDevice(2, alone=False)),
        ({NOSET_CUDA: "1", CUDA: "GPU-a,GPU-b"}, {"GPU": ["GPU-b"]}, OwnDevice(1, alone=False)),
        ({NOSET_CUDA: "0", CUDA: "3"}, {"GPU": ["3"]}, OwnDevice(0, alone=True)),
        ({"RAY_EXPERIMENTAL_NOSET_HIP_VISIBLE_DEVICES": "1"}, {"GPU": ["2"]}, OwnDevice(2, alone=False)),
        ({"RAY_EXPERIMENTAL_NOSET_ROCR_VISIBLE_DEVICES": "1"}, {"GPU": ["2"]}, OwnDevice(2, alone=False)),
        ({NOSET_ASCEND: "1"}, {"NPU": ["7"]}, OwnDevice(7, alone=False)),
        ({NOSET_ASCEND: "1", CUDA: "3"}, {"GPU": ["3"]}, OwnDevice(0, alone=True)),
    ],
)
def test_the_device_of_a_rank(
    environment: dict[str, str], assigned: dict[str, list[str]], device: OwnDevice | None
) -> None:
    assert own_device(environment, assigned) == device


def test_a_device_that_is_not_visible_is_an_error() -> None:
    with pytest.raises(DeviceVisibilityError, match=r"Ray assigned GPU 3 .* CUDA_VISIBLE_DEVICES='0,1' does not show"):
        own_device({NOSET_CUDA: "1", CUDA: "0,1"}, {"GPU": ["3"]})
    with pytest.raises(DeviceVisibilityError, match="CUDA_VISIBLE_DEVICES='not set'"):
        own_device({NOSET_CUDA: "1"}, {"GPU": ["GPU-a"]})
