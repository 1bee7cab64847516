"""See `transferqueue.workers`."""

from transferqueue.workers.dispatch_functions import (
    collect_all_to_all,
    collect_dp_compute,
    collect_dp_compute_data_proto,
    collect_lazy_compute_data_proto,
    collect_megatron_compute,
    collect_megatron_compute_data_proto,
    collect_megatron_pp_as_dp,
    collect_megatron_pp_as_dp_data_proto,
    collect_nd_compute,
    collect_nd_compute_dataproto,
    dispatch_all_to_all,
    dispatch_dp_compute,
    dispatch_dp_compute_data_proto,
    dispatch_dp_compute_data_proto_with_func,
    dispatch_lazy_compute_data_proto,
    dispatch_megatron_compute,
    dispatch_megatron_compute_data_proto,
    dispatch_megatron_pp_as_dp,
    dispatch_megatron_pp_as_dp_data_proto,
    dispatch_nd_compute,
    dispatch_nd_compute_dataproto,
    dispatch_one_to_all,
)
from transferqueue.workers.dispatch_functions import refuse_direct_rollout_call as dummy_direct_rollout_call
from transferqueue.workers.dispatch_modes import (
    DISPATCH_MODE_FN_REGISTRY,
    Dispatch,
    get_predefined_dispatch_fn,
    make_nd_compute_dataproto_dispatch_fn,
    register_dispatch_mode,
    update_dispatch_mode,
)
from transferqueue.workers.dispatch_modes import resolve_dispatch_mode as _check_dispatch_mode
from transferqueue.workers.execute import Execute, get_predefined_execute_fn
from transferqueue.workers.execute import get_predefined_execute_fn as _check_execute_mode
from transferqueue.workers.register import MAGIC_ATTR, register
from transferqueue.workers.row_batch import join_outputs as _concat_data_proto_or_future
from transferqueue.workers.splitting import split_in_pieces as _split_args_kwargs_data_proto

__all__ = [
    "DISPATCH_MODE_FN_REGISTRY",
    "MAGIC_ATTR",
    "Dispatch",
    "Execute",
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
]
