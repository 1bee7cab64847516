#include <nanobind/stl/optional.h>

#include <optional>

#include "bind/arrays.hpp"
#include "bind/bytes.hpp"
#include "bind/classes.hpp"
#include "core/index/index.hpp"

namespace nb = nanobind;

namespace tq::bind {

void bind_task_snapshot(nb::module_& module) {
  nb::class_<TaskSnapshot>(module, "TaskSnapshot", "What a sampler works on: rows ready, unmarked and not claimed, and its own state.")
      .def_ro("partition_found", &TaskSnapshot::partition_found)
      .def_ro("task_version", &TaskSnapshot::task_version)
      .def_prop_ro("sampler_state", [](const TaskSnapshot& self) { return to_bytes(self.sampler_state); })
      .def_prop_ro("ready", [](const TaskSnapshot& self) { return to_array(self.ready); }, nb::rv_policy::automatic)
      .def_prop_ro("claimed", [](const TaskSnapshot& self) { return to_array(self.claimed); }, nb::rv_policy::automatic)
      .def_prop_ro("next_lapse_s", [](const TaskSnapshot& self) -> std::optional<double> {
        if (!self.next_lapse_ns) return std::nullopt;
        return static_cast<double>(*self.next_lapse_ns) * 1e-9;
      });
}

}  // namespace tq::bind
