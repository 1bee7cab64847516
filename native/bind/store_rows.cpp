// Rows, keys, tags and tasks of the Store.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/bytes.hpp"
#include "bind/gil.hpp"
#include "bind/rows.hpp"
#include "bind/store.hpp"
#include "bind/text.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

using Indexes = Array<std::int64_t>;
using Marks = Array<std::int8_t>;

std::vector<std::int8_t> as_int8(const std::vector<std::uint8_t>& values) { return {values.begin(), values.end()}; }

std::pair<bool, Indexes> find_keys(Store& self, const nb::str& partition, const Strings& keys) {
  const std::string name = to_utf8(partition, "partition");
  const std::vector<std::string> converted = to_strings(keys, "keys");
  auto [found, indexes] = without_gil([&] { return self.find_keys(name, converted); });
  return {found, to_array(std::move(indexes))};
}

RowListing list_rows(Store& self, const nb::str& partition) {
  const std::string name = to_utf8(partition, "partition");
  return without_gil([&] { return self.list_rows(name); });
}

RowListing describe_rows(Store& self, const nb::str& partition, const IndexesArgument& indexes) {
  const std::string name = to_utf8(partition, "partition");
  const std::vector<std::int64_t> rows = to_vector(indexes);
  return without_gil([&] { return self.describe_rows(name, rows); });
}

void merge_tags(Store& self, const nb::str& partition, const IndexesArgument& indexes, const ByteStrings& tags) {
  const std::string name = to_utf8(partition, "partition");
  const std::vector<std::int64_t> rows = to_vector(indexes);
  const std::vector<std::string> maps = to_byte_strings(tags, "tags");
  changing(std::nullopt, [&] { self.merge_tags(name, rows, maps); });
}

std::int64_t clear_rows(Store& self, const nb::str& partition, const std::optional<IndexesArgument>& indexes,
                        const std::optional<Strings>& keys) {
  const std::string name = to_utf8(partition, "partition");
  const RowSelector rows = existing_rows(indexes, keys, "clear_rows");
  return changing(std::nullopt, [&] { return self.clear_rows(name, rows); });
}

std::tuple<bool, Indexes, Array2<std::int8_t>, std::vector<bool>> production(
    Store& self, const nb::str& partition, const Strings& fields, const std::optional<IndexesArgument>& indexes) {
  const std::string name = to_utf8(partition, "partition");
  const std::vector<std::string> names = to_strings(fields, "fields");
  std::optional<std::vector<std::int64_t>> rows;
  if (indexes) rows = to_vector(*indexes);
  ProductionStatus status = without_gil([&] { return self.production(name, names, rows); });
  const std::size_t n_rows = status.indexes.size();
  return {status.partition_found, to_array(std::move(status.indexes)),
          to_array2(as_int8(status.ready), n_rows, names.size()), status.field_known};
}

std::tuple<bool, Indexes, Marks> consumption(Store& self, const nb::str& partition, const nb::str& task) {
  const std::string name = to_utf8(partition, "partition");
  const std::string task_name = to_utf8(task, "task");
  Index::ConsumptionStatus status = without_gil([&] { return self.consumption(name, task_name); });
  return {status.partition_found, to_array(std::move(status.indexes)), to_array(as_int8(status.consumed))};
}

std::optional<std::int64_t> consumed_rows(Store& self, const nb::str& partition, const nb::str& task) {
  const std::string name = to_utf8(partition, "partition");
  const std::string task_name = to_utf8(task, "task");
  return without_gil([&] { return self.consumed_rows(name, task_name); });
}

TaskSnapshot task_snapshot(Store& self, const nb::str& partition, const nb::str& task, const Strings& fields) {
  const std::string name = to_utf8(partition, "partition");
  const std::string task_name = to_utf8(task, "task");
  const std::vector<std::string> names = to_strings(fields, "fields");
  return without_gil([&] { return self.task_snapshot(name, task_name, names); });
}

bool task_commit(Store& self, const nb::str& partition, const nb::str& task, std::uint64_t task_version,
                 const Strings& fields, const IndexesArgument& consumed, const nb::bytes& sampler_state,
                 std::optional<double> lock_timeout_s) {
  const std::string name = to_utf8(partition, "partition");
  const std::string task_name = to_utf8(task, "task");
  const std::vector<std::string> names = to_strings(fields, "fields");
  const std::vector<std::int64_t> rows = to_vector(consumed);
  const std::string state = to_string(sampler_state);
  return changing(lock_timeout_s, [&] { return self.task_commit(name, task_name, task_version, names, rows, state); });
}

void task_reset(Store& self, const nb::str& partition, const std::optional<nb::str>& task) {
  const std::string name = to_utf8(partition, "partition");
  const std::optional<std::string> task_name =
      task ? std::optional<std::string>(to_utf8(*task, "task")) : std::nullopt;
  changing(std::nullopt, [&] { self.task_reset(name, task_name); });
}

void mark_rows(Store& self, const nb::str& partition, const nb::str& task, const IndexesArgument& rows,
               const std::optional<nb::bytes>& sampler_state) {
  const std::string name = to_utf8(partition, "partition");
  const std::string task_name = to_utf8(task, "task");
  const std::vector<std::int64_t> marked = to_vector(rows);
  const auto state = sampler_state ? std::optional<std::string>(to_string(*sampler_state)) : std::nullopt;
  changing(std::nullopt, [&] { self.mark_rows(name, task_name, marked, state); });
}

bool rename_partition(Store& self, const nb::str& partition, const nb::str& to, std::uint64_t next_claim) {
  const std::string name = to_utf8(partition, "partition");
  const std::string new_name = to_utf8(to, "partition");
  return without_gil([&] { return self.rename_partition(name, new_name, next_claim); });
}

bool clear_partition(Store& self, const nb::str& partition) {
  const std::string name = to_utf8(partition, "partition");
  return changing(std::nullopt, [&] { return self.clear_partition(name); });
}

// A call that takes only the partition's name.
template <typename Method>
auto by_name(Method method) {
  return [method](Store& self, const nb::str& partition) {
    const std::string name = to_utf8(partition, "partition");
    return without_gil([&] { return (self.*method)(name); });
  };
}

}  // namespace

void bind_store_rows(nb::class_<Store>& store) {
  store.def("find_keys", &find_keys, nb::arg("partition"), nb::arg("keys"))
      .def("list_rows", &list_rows, nb::arg("partition"))
      .def("describe_rows", &describe_rows, nb::arg("partition"), nb::arg("indexes").noconvert())
      .def("merge_tags", &merge_tags, nb::arg("partition"), nb::arg("indexes").noconvert(), nb::arg("tags"))
      .def("clear_rows", &clear_rows, nb::arg("partition"), nb::kw_only(),
           nb::arg("indexes").noconvert().none() = nb::none(), nb::arg("keys") = nb::none())
      .def("clear_partition", &clear_partition, nb::arg("partition"))
      .def("partitions", [](Store& self) { return to_list(without_gil([&] { return self.partitions(); })); })
      .def("ensure_partition", by_name(&Store::ensure_partition), nb::arg("partition"))
      .def(
          "field_names",
          [](Store& self, const nb::str& partition) {
            const std::string name = to_utf8(partition, "partition");
            return to_list(without_gil([&] { return self.field_names(name); }));
          },
          nb::arg("partition"))
      .def("partition_version", by_name(&Store::partition_version), nb::arg("partition"))
      .def("production", &production, nb::arg("partition"), nb::arg("fields"),
           nb::arg("indexes").noconvert().none() = nb::none())
      .def("consumption", &consumption, nb::arg("partition"), nb::arg("task"))
      .def("unconsumed_rows", by_name(&Store::unconsumed_rows), nb::arg("partition"))
      .def("consumed_rows", &consumed_rows, nb::arg("partition"), nb::arg("task"))
      .def("task_snapshot", &task_snapshot, nb::arg("partition"), nb::arg("task"), nb::arg("fields"))
      .def("task_commit", &task_commit, nb::arg("partition"), nb::arg("task"), nb::arg("task_version"),
           nb::arg("fields"), nb::arg("consumed").noconvert(), nb::arg("sampler_state"), nb::kw_only(),
           nb::arg("lock_timeout_s") = nb::none())
      .def("mark_rows", &mark_rows, nb::arg("partition"), nb::arg("task"), nb::arg("rows").noconvert(),
           nb::arg("sampler_state").none())
      .def("rename_partition", &rename_partition, nb::arg("partition"), nb::arg("to"), nb::arg("next_claim"))
      .def("task_reset", &task_reset, nb::arg("partition"), nb::arg("task").none());
}

}  // namespace tq::bind
