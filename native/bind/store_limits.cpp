// Limits of partitions. A cap that is not there, or of which nothing is said, is no entry of the dict.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind/bytes.hpp"
#include "bind/gil.hpp"
#include "bind/rows.hpp"
#include "bind/store.hpp"
#include "bind/tables.hpp"
#include "bind/text.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

using Facts = nb::typed<nb::dict, nb::str, nb::any>;
using Rules = nb::typed<nb::list, nb::typed<nb::tuple, nb::str, Facts>>;

constexpr std::pair<const char*, WhenExceeded> ways[] = {
    {"wait", WhenExceeded::wait}, {"shed", WhenExceeded::shed}, {"raise", WhenExceeded::raise}};
constexpr std::pair<const char*, LimitRule::Cap LimitRule::*> caps[] = {
    {"max_bytes", &LimitRule::max_bytes},
    {"max_unconsumed_rows", &LimitRule::max_unconsumed_rows},
    {"max_version_lag", &LimitRule::max_version_lag}};

nb::str name_of(WhenExceeded way) { return nb::str(ways[static_cast<std::size_t>(way)].first); }

nb::list names(const std::vector<std::string>& strings) {
  nb::list list;
  for (const std::string& each : strings) list.append(to_str(each));
  return list;
}

// An entry of None: no cap. An entry that is missing: nothing is said.
LimitRule to_rule(const nb::dict& settings) {
  LimitRule rule;
  for (const auto& [key, value] : settings) {
    const std::string name = to_utf8(nb::cast<nb::str>(key), "setting");
    bool known = false;
    for (const auto& [cap, member] : caps) {
      if (name != cap) continue;
      known = true;
      rule.*member = value.is_none() ? LimitRule::Cap(std::in_place, std::nullopt)
                                     : LimitRule::Cap(std::in_place, nb::cast<std::uint64_t>(value));
    }
    if (name == "consumers") {
      known = true;
      rule.consumers.emplace();
      for (const nb::handle task : value) rule.consumers->push_back(to_utf8(nb::cast<nb::str>(task), "task"));
    } else if (name == "when_exceeded") {
      const std::string wanted = to_utf8(nb::cast<nb::str>(value), "when_exceeded");
      for (const auto& [way, number] : ways) {
        if (wanted == way) rule.when_exceeded = number;
      }
      known = rule.when_exceeded.has_value();
    }
    if (!known) throw Error(ErrorCode::invalid, "set_limits: " + name + " is no setting, or has no such value");
  }
  return rule;
}

Rules limit_rules(Store& self) {
  nb::list result;
  for (const auto& [pattern, rule] : without_gil([&] { return self.limit_rules(); })) {
    nb::dict facts;
    for (const auto& [cap, member] : caps) {
      if (!(rule.*member)) continue;
      if (*(rule.*member)) {
        facts[cap] = **(rule.*member);
      } else {
        facts[cap] = nb::none();
      }
    }
    if (rule.consumers) facts["consumers"] = names(*rule.consumers);
    if (rule.when_exceeded) facts["when_exceeded"] = name_of(*rule.when_exceeded);
    result.append(nb::make_tuple(to_str(pattern), facts));
  }
  return nb::borrow<Rules>(result);
}

template <class Value>
void set_if(nb::dict& facts, const char* name, const std::optional<Value>& value) {
  if (value) {
    facts[name] = *value;
  } else {
    facts[name] = nb::none();
  }
}

Facts limit_report(Store& self, const nb::str& partition) {
  const std::string name = to_utf8(partition, "partition");
  const LimitReport report = without_gil([&] { return self.limit_report(name); });
  nb::dict facts;
  facts["partition_found"] = report.partition_found;
  set_if(facts, "max_bytes", report.limits.max_bytes);
  set_if(facts, "max_unconsumed_rows", report.limits.max_unconsumed_rows);
  set_if(facts, "max_version_lag", report.limits.max_version_lag);
  facts["consumers"] = names(report.limits.consumers);
  facts["when_exceeded"] = name_of(report.limits.when_exceeded);
  facts["live_bytes"] = report.live_bytes;
  set_if(facts, "unconsumed_rows", report.unconsumed_rows);
  set_if(facts, "newest_version", report.newest_version);
  set_if(facts, "oldest_version", report.oldest_version);
  facts["shed_rows"] = report.shed_rows;
  return nb::borrow<Facts>(facts);
}

struct HeldRow {
  std::int64_t nbytes, cells;
};

Array2<std::int64_t> held_by(Store& self, const Resolved& resolved) {
  std::vector<HeldRow> rows;
  for (const Index::HeldBlock& block : without_gil([&] { return self.held_by(resolved); })) {
    rows.push_back({static_cast<std::int64_t>(block.nbytes), static_cast<std::int64_t>(block.cells)});
  }
  return to_table(rows);
}

void look_at_limits(Store& self, const nb::str& partition, std::int64_t count, const std::optional<IndexesArgument>& indexes,
                    const std::optional<Strings>& keys, std::uint64_t nbytes, const ByteStrings& tags) {
  const std::string name = to_utf8(partition, "partition");
  const RowSelector rows = rows_to_put(count, indexes, keys, "look_at_limits");
  const std::vector<std::string> maps = to_byte_strings(tags, "tags");
  without_gil([&] { self.look_at_limits(name, rows, nbytes, maps); });
}

void count_limit(Store& self, bool waited, bool refused, std::uint64_t shed_rows) {
  Counters& all = self.counters();
  if (waited) all.add(Counter::limit_waits, 1);
  if (refused) all.add(Counter::limit_refusals, 1);
  if (shed_rows > 0) all.add(Counter::shed_rows, shed_rows);
}

}  // namespace

void bind_store_limits(nb::class_<Store>& store) {
  store
      .def(
          "set_limits",
          [](Store& self, const nb::str& pattern, const Facts& settings) {
            const std::string name = to_utf8(pattern, "partition");
            const LimitRule rule = to_rule(settings);
            changing(std::nullopt, [&] { self.set_limits(name, rule); });
          },
          nb::arg("pattern"), nb::arg("settings"))
      .def(
          "remove_limits",
          [](Store& self, const nb::str& pattern) {
            const std::string name = to_utf8(pattern, "partition");
            return changing(std::nullopt, [&] { return self.remove_limits(name); });
          },
          nb::arg("pattern"))
      .def("limit_rules", &limit_rules)
      .def("limit_report", &limit_report, nb::arg("partition"))
      .def("held_by", &held_by, nb::arg("resolved"))
      .def(
          "set_weight_version",
          [](Store& self, const nb::str& partition, std::int64_t version) {
            const std::string name = to_utf8(partition, "partition");
            return without_gil([&] { return self.set_weight_version(name, version); });
          },
          nb::arg("partition"), nb::arg("version"))
      .def("look_at_limits", &look_at_limits, nb::arg("partition"), nb::kw_only(), nb::arg("count") = 0,
           nb::arg("indexes").noconvert().none() = nb::none(), nb::arg("keys") = nb::none(), nb::arg("nbytes") = 0,
           nb::arg("tags") = nb::tuple())
      .def("count_limit", &count_limit, nb::kw_only(), nb::arg("waited") = false, nb::arg("refused") = false,
           nb::arg("shed_rows") = 0)
      .def_prop_ro("limit_epoch", &Store::limit_epoch);
}

}  // namespace tq::bind
