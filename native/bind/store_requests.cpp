// Numbered requests of the Store.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "bind/arrays.hpp"
#include "bind/bytes.hpp"
#include "bind/classes.hpp"
#include "bind/gil.hpp"
#include "bind/store.hpp"
#include "core/error.hpp"
#include "core/index/armed_request.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

using index::ArmedRequest;

RequestId to_id(const nb::bytes& value) {
  RequestId id{};
  if (value.size() != id.size()) {
    throw Error(ErrorCode::invalid, "a request has a number of 16 bytes, not of " + std::to_string(value.size()));
  }
  std::memcpy(id.data(), value.c_str(), id.size());
  return id;
}

const char* kind(const RequestRecord& self) {
  switch (self.kind) {
    case RequestKind::publish:
      return "publish";
    case RequestKind::consume:
      return "consume";
    case RequestKind::claim:
      return "claim";
    case RequestKind::clear:
      return "clear";
    case RequestKind::other:
      break;
  }
  return "other";
}

}  // namespace

void bind_requests(nb::module_& module) {
  nb::class_<ArmedRequest>(module, "_Request", "The number of a request; see Store.request.")
      .def("__enter__",
           [](nb::handle self) {
             ArmedRequest::arm(nb::cast<std::shared_ptr<ArmedRequest>>(self));
             return nb::borrow(self);
           })
      .def("__exit__", [](const ArmedRequest& self, const nb::args&) { self.close(); });
  nb::class_<RequestRecord>(module, "RequestRecord", "What came of a request; what its kind does not have is 0 or empty.")
      .def_prop_ro("kind", &kind)
      .def_prop_ro("reply", [](const RequestRecord& self) { return to_bytes(self.reply); })
      .def_prop_ro("indexes", [](const RequestRecord& self) { return to_array(self.indexes); }, nb::rv_policy::automatic)
      .def_ro("partition_id", &RequestRecord::partition_id)
      .def_ro("partition_version", &RequestRecord::partition_version)
      .def_ro("shed_rows", &RequestRecord::shed_rows)
      .def_ro("fencing", &RequestRecord::fencing)
      .def_prop_ro("deadline_s", [](const RequestRecord& self) { return static_cast<double>(self.deadline_ns) * 1e-9; })
      .def_ro("rows", &RequestRecord::rows);
}

void bind_store_requests(nb::class_<Store>& store) {
  store
      .def(
          "request",
          [](Store& self, const nb::bytes& request_id, const nb::bytes& reply) {
            const RequestId id = to_id(request_id);
            std::string bytes = to_string(reply);
            return nb::cast(without_gil([&] { return self.request(id, std::move(bytes)); }));
          },
          nb::arg("request_id"), nb::arg("reply") = nb::bytes("", 0))
      .def(
          "find_request",
          [](Store& self, const nb::bytes& request_id) {
            const RequestId id = to_id(request_id);
            return without_gil([&] { return self.find_request(id); });
          },
          nb::arg("request_id"))
      .def("drop_requests", nogil(&Store::drop_requests));
}

}  // namespace tq::bind
