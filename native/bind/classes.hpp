// One function a class: each adds its class to the module. module.cpp calls them in the order of their dependencies.
#pragma once

#include <nanobind/nanobind.h>

namespace tq::bind {

void bind_field_layout(nanobind::module_& module);
void bind_tensor_plan(nanobind::module_& module);
void bind_reservation(nanobind::module_& module);
void bind_column_types(nanobind::module_& module);
void bind_resolved(nanobind::module_& module);
void bind_publish_result(nanobind::module_& module);
void bind_row_listing(nanobind::module_& module);
void bind_task_snapshot(nanobind::module_& module);
void bind_task_lock(nanobind::module_& module);
void bind_requests(nanobind::module_& module);
void bind_saved_session(nanobind::module_& module);
void bind_session_snapshot(nanobind::module_& module);
void bind_store(nanobind::module_& module);
void bind_claim_clock(nanobind::module_& module);
void bind_pause(nanobind::module_& module);
void bind_measure(nanobind::module_& module);

}  // namespace tq::bind
