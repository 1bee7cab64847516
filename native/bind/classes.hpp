// One function a class: each adds its class to the module. module.cpp calls them in the order of their dependencies.
#pragma once

#include <nanobind/nanobind.h>

namespace tq::bind {

void bind_field_layout(nanobind::module_& module);
void bind_measure(nanobind::module_& module);

}  // namespace tq::bind
