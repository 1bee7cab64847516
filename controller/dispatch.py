"""The dispatch modes, for programs that look for them beside the worker groups. Defined in `transferqueue.workers`."""

from transferqueue.workers.arguments import Broadcast, PerRank
from transferqueue.workers.dispatch_modes import (
    Dispatch,
    DispatchMode,
    get_predefined_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
    register_dispatch_mode,
    update_dispatch_mode,
)
from transferqueue.workers.execute import Execute, get_predefined_execute_fn
from transferqueue.workers.register import register

__all__ = [
    "Broadcast",
    "Dispatch",
    "DispatchMode",
    "Execute",
    "PerRank",
    "get_predefined_dispatch_fn",
    "get_predefined_execute_fn",
    "make_nd_compute_dataproto_dispatch_fn",
    "register",
    "register_dispatch_mode",
    "update_dispatch_mode",
]
