// The Store's life, puts, gets and waits; its rows and tasks are in store_rows.cpp, claims in
// store_claims.cpp, reports in store_service.cpp.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "bind/classes.hpp"
#include "bind/gil.hpp"
#include "bind/rows.hpp"
#include "bind/store.hpp"
#include "bind/task_lock.hpp"
#include "bind/text.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

void format(const nb::str& directory, int control_fd, int table_fd, int payload_fd, const nb::str& session,
            std::uint64_t payload_bytes, std::uint64_t index_bytes, std::uint64_t step_bytes, int spill_fd,
            std::uint64_t spill_bytes, std::int64_t first_row) {
  const SessionFiles files{to_utf8(directory, "directory"), control_fd, table_fd, payload_fd,
                           to_utf8(session, "session"), spill_fd};
  without_gil([&] { Store::format(files, {payload_bytes, index_bytes, step_bytes, spill_bytes, first_row}); });
}

void init(Store* self, const nb::str& directory, int control_fd, int table_fd, int payload_fd, const nb::str& session,
          int spill_fd) {
  const SessionFiles files{to_utf8(directory, "directory"), control_fd, table_fd, payload_fd,
                           to_utf8(session, "session"), spill_fd};
  without_gil([&] { new (self) Store(files); });
}

std::shared_ptr<PendingBlock> reserve(Store& self, std::uint64_t nbytes, std::optional<double> timeout_s, bool ahead,
                                      std::optional<double> lock_timeout_s) {
  return changing(lock_timeout_s, [&] { return self.reserve(nbytes, timeout_s, check_signals, ahead); });
}

PublishResult publish(Store& self, const nb::str& partition, std::int64_t count,
                      const std::optional<IndexesArgument>& indexes, const std::optional<Strings>& keys,
                      PendingBlock* reservation, const std::vector<FieldLayout>& fields, const ByteStrings& tags,
                      bool exclusive_keys, bool create_rows, std::optional<std::uint64_t> elsewhere_nbytes,
                      std::optional<double> lock_timeout_s) {
  PublishRequest request;
  request.partition = to_utf8(partition, "partition");
  request.rows = rows_to_put(count, indexes, keys, "publish", create_rows);
  request.fields = fields;
  request.tags = to_byte_strings(tags, "tags");
  request.exclusive_keys = exclusive_keys;
  request.create_rows = create_rows;
  request.elsewhere_bytes = elsewhere_nbytes;
  return changing(lock_timeout_s, [&] { return self.publish(request, reservation); });
}

std::int64_t move(Store& self, const Resolved& source, PendingBlock& reservation,
                  const std::vector<FieldLayout>& fields, bool compaction, std::optional<double> lock_timeout_s) {
  return changing(lock_timeout_s, [&] { return self.move(source, reservation, fields, compaction); });
}

std::shared_ptr<Resolved> resolve(Store& self, const nb::str& partition, const std::optional<IndexesArgument>& indexes,
                                  const std::optional<Strings>& keys, const std::optional<Strings>& fields,
                                  bool lease) {
  const std::string name = to_utf8(partition, "partition");
  const RowSelector rows = existing_rows(indexes, keys, "resolve");
  std::optional<std::vector<std::string>> names;
  if (fields) names = to_strings(*fields, "fields");
  return without_gil([&] { return self.resolve(name, rows, names, lease); });
}

std::optional<std::string> optional_utf8(const std::optional<nb::str>& value) {
  return value ? std::optional<std::string>(to_utf8(*value, "partition")) : std::nullopt;
}

}  // namespace

void bind_store(nb::module_& module) {
  nb::class_<Store> store(module, "Store", "One process's attachment to a session.");
  store
      .def_static("format", &format, nb::arg("directory"), nb::arg("control_fd"), nb::arg("table_fd"),
                  nb::arg("payload_fd"), nb::kw_only(), nb::arg("session"), nb::arg("payload_bytes"),
                  nb::arg("index_bytes"), nb::arg("step_bytes"), nb::arg("spill_fd") = -1, nb::arg("spill_bytes") = 0,
                  nb::arg("first_row") = 0)
      .def("__init__", &init, nb::arg("directory"), nb::arg("control_fd"), nb::arg("table_fd"), nb::arg("payload_fd"),
           nb::kw_only(), nb::arg("session"), nb::arg("spill_fd") = -1)
      .def("close", nogil(&Store::close))
      .def_prop_ro("closed", &Store::closed)
      .def_prop_ro("owner", nogil(&Store::owner))
      .def("end_session", nogil(&Store::end_session))
      .def_prop_ro("ended", &Store::ended)
      .def("reserve", &reserve, nb::arg("nbytes"), nb::arg("timeout_s").none(), nb::arg("ahead") = false,
           nb::kw_only(), nb::arg("lock_timeout_s") = nb::none())
      .def("reserve_headroom", nogil(&Store::reserve_headroom), nb::arg("nbytes"))
      .def("reserve_spilled", nogil(&Store::reserve_spilled), nb::arg("nbytes"))
      .def("publish", &publish, nb::arg("partition"), nb::kw_only(), nb::arg("count") = 0,
           nb::arg("indexes").noconvert().none() = nb::none(), nb::arg("keys") = nb::none(),
           nb::arg("reservation") = nb::none(), nb::arg("fields") = nb::tuple(), nb::arg("tags") = nb::tuple(),
           nb::arg("exclusive_keys") = false, nb::arg("create_rows") = false, nb::arg("elsewhere_nbytes") = nb::none(),
           nb::arg("lock_timeout_s") = nb::none())
      .def("move", &move, nb::arg("source"), nb::arg("reservation"), nb::arg("fields"), nb::kw_only(),
           nb::arg("compaction") = false, nb::arg("lock_timeout_s") = nb::none())
      .def("resolve", &resolve, nb::arg("partition"), nb::kw_only(),
           nb::arg("indexes").noconvert().none() = nb::none(), nb::arg("keys") = nb::none(),
           nb::arg("fields") = nb::none(), nb::arg("lease") = true)
      .def(
          "lock_task",
          [](Store& self, const nb::str& partition, const nb::str& task, double timeout_s) {
            return nb::cast(std::make_unique<TaskLockContext>(self, to_utf8(partition, "partition"),
                                                              to_utf8(task, "task"), timeout_s));
          },
          nb::arg("partition"), nb::arg("task"), nb::arg("timeout_s"), nb::keep_alive<0, 1>())
      .def(
          "wake_word",
          [](Store& self, const std::optional<nb::str>& partition) {
            const auto name = optional_utf8(partition);
            return without_gil([&] { return self.wake_word(name); });
          },
          nb::arg("partition").none())
      .def(
          "wait_word",
          [](Store& self, const std::optional<nb::str>& partition, std::uint32_t seen, double timeout_s) {
            const auto name = optional_utf8(partition);
            return without_gil([&] { return self.wait_word(name, seen, timeout_s); });
          },
          nb::arg("partition").none(), nb::arg("seen"), nb::arg("timeout_s"))
      .def(
          "wait_change",
          [](Store& self, const nb::str& partition, std::uint32_t seen, std::uint64_t version, double timeout_s) {
            const std::string name = to_utf8(partition, "partition");
            return without_gil([&] { return self.wait_change(name, seen, version, timeout_s, check_signals); });
          },
          nb::arg("partition"), nb::arg("seen"), nb::arg("version"), nb::arg("timeout_s"))
      .def(
          "wake",
          [](Store& self, const std::optional<nb::str>& partition) {
            const auto name = optional_utf8(partition);
            without_gil([&] { self.wake(name); });
          },
          nb::arg("partition").none());
  bind_store_rows(store);
  bind_store_claims(store);
  bind_store_requests(store);
  bind_store_limits(store);
  bind_store_service(store);
  bind_store_checkpoint(store);
  bind_store_counters(store);
}

}  // namespace tq::bind
