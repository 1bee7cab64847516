#include "core/pause.hpp"

#include <nanobind/stl/string.h>

#include "bind/classes.hpp"

namespace nb = nanobind;

namespace tq::bind {

void bind_pause(nb::module_& module) {
  module.attr("PAUSE_POINTS") = pause_points_compiled;
  module.def(
      "arm_pause",
      [](const std::string& name, const std::string& action, int after) {
        arm_pause(name, pause_action(action), after);
      },
      nb::arg("name"), nb::arg("action"), nb::kw_only(), nb::arg("after") = 0,
      "Tests only: kill, stop or fail this process at the named point, after `after` passes.");
  module.def("resume", &resume_pause, nb::arg("name"), "Disarms the point and lets every thread stopped there go on.");
  module.def("paused", &is_paused, nb::arg("name"), "A thread waits at that point now.");
}

}  // namespace tq::bind
