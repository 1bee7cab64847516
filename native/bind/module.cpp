#include <nanobind/nanobind.h>

#include "bind/classes.hpp"
#include "bind/errors.hpp"
#include "core/memory/layout.hpp"
#include "core/memory/spill_file.hpp"

namespace nb = nanobind;

NB_MODULE(_native, module) {
  // A session and its results are often module globals, which the interpreter never frees: no leak of ours, no news.
  nb::set_leak_warnings(false);
  module.attr("LAYOUT_VERSION") = tq::layout::layout_version;
  module.attr("BUILD_FINGERPRINT") = tq::layout::fingerprint();
  module.def("is_spill_file", &tq::SpillFile::is_one, nanobind::arg("fd"));
  tq::bind::register_errors(module);
  tq::bind::bind_field_layout(module);
  tq::bind::bind_tensor_plan(module);
  tq::bind::bind_reservation(module);
  tq::bind::bind_column_types(module);
  tq::bind::bind_resolved(module);
  tq::bind::bind_publish_result(module);
  tq::bind::bind_row_listing(module);
  tq::bind::bind_task_snapshot(module);
  tq::bind::bind_task_lock(module);
  tq::bind::bind_requests(module);
  tq::bind::bind_saved_session(module);
  tq::bind::bind_session_snapshot(module);
  tq::bind::bind_store(module);
  tq::bind::bind_claim_clock(module);
  tq::bind::bind_pause(module);
  tq::bind::bind_measure(module);
}
