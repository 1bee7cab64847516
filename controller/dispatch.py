"""The dispatch modes, for programs that look for them beside the worker groups. Defined in `transferqueue.workers`."""

from transferqueue.workers.arguments import Broadcast, PerRank
from transferqueue.workers.dispatch_mode import DispatchMode
from transferqueue.workers.dispatch_modes import (
    DISPATCH_MODE_FN_REGISTRY,
    Dispatch,
    get_predefined_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
    register_dispatch_mode,
    update_dispatch_mode,
)
from transferqueue.workers.errors import DispatchError, DispatchRefusedError, OutputMismatchError, UnknownModeError
from transferqueue.workers.execute import Execute, get_predefined_execute_fn
from transferqueue.workers.padding_config import DataProtoConfig
from transferqueue.workers.register import MAGIC_ATTR, register

__all__ = [
    "DISPATCH_MODE_FN_REGISTRY",
    "MAGIC_ATTR",
    "Broadcast",
    "DataProtoConfig",
    "Dispatch",
    "DispatchError",
    "DispatchMode",
    "DispatchRefusedError",
    "Execute",
    "OutputMismatchError",
    "PerRank",
    "UnknownModeError",
    "get_predefined_dispatch_fn",
    "get_predefined_execute_fn",
    "make_nd_compute_dataproto_dispatch_fn",
    "register",
    "register_dispatch_mode",
    "update_dispatch_mode",
]
