// What the metrics ask of the Store, and what Python counts in it.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "bind/gil.hpp"
#include "bind/store.hpp"
#include "bind/text.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

using Counts = nb::typed<nb::dict, nb::str, int>;
using Facts = nb::typed<nb::dict, nb::str, nb::any>;
using FactsList = nb::typed<nb::list, Facts>;
using Classes = nb::typed<nb::list, nb::typed<nb::tuple, int, int>>;
using Latencies = nb::typed<nb::dict, nb::str, nb::typed<nb::tuple, int, Classes>>;

constexpr std::pair<const char*, Latency> latencies[] = {
    {"put", Latency::put},             {"get", Latency::get},
    {"data_wait", Latency::data_wait}, {"room_wait", Latency::room_wait},
    {"lock_wait", Latency::lock_wait}, {"lock_hold", Latency::lock_hold},
};
constexpr std::pair<const char*, Counter> counters[] = {
    {"put_rows", Counter::put_rows},
    {"put_bytes", Counter::put_bytes},
    {"get_rows", Counter::get_rows},
    {"get_viewed_bytes", Counter::get_viewed_bytes},
    {"get_copied_bytes", Counter::get_copied_bytes},
    {"data_timeouts", Counter::data_timeouts},
    {"room_timeouts", Counter::room_timeouts},
    {"reaped_clients", Counter::reaped_clients},
    {"coalesced_blocks", Counter::coalesced_blocks},
    {"coalesced_bytes", Counter::coalesced_bytes},
    {"spilled_blocks", Counter::spilled_blocks},
    {"spilled_bytes", Counter::spilled_bytes},
    {"limit_waits", Counter::limit_waits},
    {"limit_refusals", Counter::limit_refusals},
    {"shed_rows", Counter::shed_rows},
    {"compacted_blocks", Counter::compacted_blocks},
    {"compacted_bytes", Counter::compacted_bytes},
    {"pulled_bytes", Counter::pulled_bytes},
    {"served_bytes", Counter::served_bytes},
};
constexpr std::pair<const char*, MethodFigure> figures[] = {
    {"calls", MethodFigure::calls},
    {"failures", MethodFigure::failures},
    {"rows", MethodFigure::rows},
    {"get_ns", MethodFigure::get_ns},
    {"run_ns", MethodFigure::run_ns},
    {"put_ns", MethodFigure::put_ns},
    {"viewed_bytes", MethodFigure::viewed_bytes},
    {"copied_bytes", MethodFigure::copied_bytes},
};

std::uint64_t nanoseconds(double seconds) {
  return std::isfinite(seconds) && seconds > 0 ? static_cast<std::uint64_t>(seconds * 1e9) : 0;
}

Counts counts(Store& self) {
  Counters& all = self.counters();
  nb::dict result;
  for (const auto& [name, counter] : counters) result[name] = all.total(counter);
  return nb::borrow<Counts>(result);
}

// name -> (sum in ns, [(end of the class in ns, how often)]): every class but the last, open one, then that with end 0.
Latencies latency_counts(Store& self) {
  Counters& all = self.counters();
  nb::dict result;
  for (const auto& [name, latency] : latencies) {
    const LatencyTotal total = all.total(latency);
    nb::list classes;
    for (unsigned c = 0; c < LatencyClasses::count; ++c) {
      const std::uint64_t end_ns = c + 1 < LatencyClasses::count ? LatencyClasses::end_ns(c) : 0;
      classes.append(nb::make_tuple(end_ns, total.counts[c]));
    }
    result[name] = nb::make_tuple(total.sum_ns, classes);
  }
  return nb::borrow<Latencies>(result);
}

FactsList methods(Store& self) {
  nb::list result;
  for (const MethodTotal& method : self.counters().methods()) {
    nb::dict facts;
    facts["name"] = to_str(method.name);
    for (const auto& [name, figure] : figures) facts[name] = method.figures[static_cast<std::size_t>(figure)];
    result.append(facts);
  }
  return nb::borrow<FactsList>(result);
}

void count_wait(Store& self, double seconds, bool for_room, bool timed_out) {
  Counters& all = self.counters();
  all.took(for_room ? Latency::room_wait : Latency::data_wait, std::chrono::nanoseconds(nanoseconds(seconds)));
  if (timed_out) all.add(for_room ? Counter::room_timeouts : Counter::data_timeouts, 1);
}

void count_sent(Store& self, std::uint64_t pulled, std::uint64_t served) {
  if (pulled > 0) self.counters().add(Counter::pulled_bytes, pulled);
  if (served > 0) self.counters().add(Counter::served_bytes, served);
}

void count_method(Store& self, const nb::str& method, std::uint64_t rows, double get_s, double run_s, double put_s,
                  std::uint64_t viewed_bytes, std::uint64_t copied_bytes, bool failed) {
  std::array<std::uint64_t, layout::method_figure_count> added{};
  const auto set = [&added](MethodFigure figure, std::uint64_t value) { added[static_cast<std::size_t>(figure)] = value; };
  set(MethodFigure::calls, 1);
  set(MethodFigure::failures, failed ? 1 : 0);
  set(MethodFigure::rows, rows);
  set(MethodFigure::get_ns, nanoseconds(get_s));
  set(MethodFigure::run_ns, nanoseconds(run_s));
  set(MethodFigure::put_ns, nanoseconds(put_s));
  set(MethodFigure::viewed_bytes, viewed_bytes);
  set(MethodFigure::copied_bytes, copied_bytes);
  self.counters().add_method(to_utf8(method, "method"), added);
}

FactsList census(Store& self) {
  nb::list result;
  for (const Index::PartitionCensus& partition : without_gil([&] { return self.census(); })) {
    nb::dict facts;
    facts["name"] = to_str(partition.name);
    facts["ready"] = partition.ready;
    facts["partial"] = partition.partial;
    facts["empty"] = partition.empty;
    nb::dict consumed;
    for (const auto& [task, rows] : partition.consumed) consumed[to_str(task)] = rows;
    facts["consumed"] = consumed;
    result.append(facts);
  }
  return nb::borrow<FactsList>(result);
}

}  // namespace

void bind_store_counters(nb::class_<Store>& store) {
  store.def("counts", &counts)
      .def("latencies", &latency_counts)
      .def("methods", &methods)
      .def("count_wait", &count_wait, nb::arg("seconds"), nb::kw_only(), nb::arg("for_room"), nb::arg("timed_out"))
      .def("count_sent", &count_sent, nb::kw_only(), nb::arg("pulled") = 0, nb::arg("served") = 0)
      .def("count_method", &count_method, nb::arg("method"), nb::kw_only(), nb::arg("rows"), nb::arg("get_s"),
           nb::arg("run_s"), nb::arg("put_s"), nb::arg("viewed_bytes"), nb::arg("copied_bytes"), nb::arg("failed"))
      .def("census", &census);
}

}  // namespace tq::bind
