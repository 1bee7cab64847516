// Claims of the Store. Times are seconds here and nanoseconds in the core.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "bind/bytes.hpp"
#include "bind/classes.hpp"
#include "bind/gil.hpp"
#include "bind/rows.hpp"
#include "bind/store.hpp"
#include "bind/text.hpp"
#include "core/claim_clock.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

std::int64_t to_ns(double seconds, const char* what) {
  if (!(seconds > 0)) throw Error(ErrorCode::invalid, std::string(what) + " must be more than 0 seconds");
  constexpr double longest_s = 2e9;  // 63 years: the sum with the clock still fits
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::min(seconds, longest_s) * 1e9));
}
double to_s(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

std::optional<std::pair<std::uint64_t, double>> claim(Store& self, const nb::str& partition, const nb::str& task,
                                                      std::uint64_t task_version, const Strings& fields,
                                                      const IndexesArgument& rows, const nb::bytes& sampler_state,
                                                      double lease_s, std::optional<double> lock_timeout_s) {
  TaskChoice choice;
  choice.partition = to_utf8(partition, "partition");
  choice.task = to_utf8(task, "task");
  choice.task_version = task_version;
  choice.fields = to_strings(fields, "fields");
  choice.rows = to_vector(rows);
  choice.sampler_state = to_string(sampler_state);
  const std::int64_t lease_ns = to_ns(lease_s, "lease_s");
  const auto grant = changing(lock_timeout_s, [&] { return self.claim(choice, lease_ns); });
  if (!grant) return std::nullopt;
  return std::pair{grant->fencing, to_s(grant->deadline_ns)};
}

void finish_claim(Store& self, const nb::str& partition, const nb::str& task, std::uint64_t fencing, bool consumed) {
  const std::string name = to_utf8(partition, "partition");
  const std::string task_name = to_utf8(task, "task");
  changing(std::nullopt, [&] { self.finish_claim(name, task_name, fencing, consumed); });
}

double extend_claim(Store& self, const nb::str& partition, const nb::str& task, std::uint64_t fencing, double lease_s) {
  const std::string name = to_utf8(partition, "partition");
  const std::string task_name = to_utf8(task, "task");
  const std::int64_t lease_ns = to_ns(lease_s, "lease_s");
  return to_s(changing(std::nullopt, [&] { return self.extend_claim(name, task_name, fencing, lease_ns); }));
}

}  // namespace

void bind_store_claims(nb::class_<Store>& store) {
  store
      .def("claim", &claim, nb::arg("partition"), nb::arg("task"), nb::arg("task_version"), nb::arg("fields"),
           nb::arg("rows").noconvert(), nb::arg("sampler_state"), nb::arg("lease_s"), nb::kw_only(),
           nb::arg("lock_timeout_s") = nb::none())
      .def("finish_claim", &finish_claim, nb::arg("partition"), nb::arg("task"), nb::arg("fencing"),
           nb::arg("consumed"))
      .def("extend_claim", &extend_claim, nb::arg("partition"), nb::arg("task"), nb::arg("fencing"), nb::arg("lease_s"))
      .def("drop_claims", nogil(&Store::drop_claims));
}

void bind_claim_clock(nb::module_& module) {
  module.def("claim_clock", [] { return to_s(claim_clock_ns()); }, "Seconds on the clock of claims (CLOCK_BOOTTIME).");
  module.def(
      "set_claim_clock_ahead",
      [](double ahead_s) { set_claim_clock_ahead(static_cast<std::int64_t>(std::clamp(ahead_s, 0.0, 1e9) * 1e9)); },
      nb::arg("ahead_s"), "Tests only: this process's clock of claims is ahead by so much from now on.");
}

}  // namespace tq::bind
