// What a checkpoint asks of the Store.
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <vector>

#include "bind/arrays.hpp"
#include "bind/gil.hpp"
#include "bind/store.hpp"
#include "core/error.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

std::vector<std::shared_ptr<PendingBlock>> reserve_all(Store& self, const IndexesArgument& sizes) {
  std::vector<std::uint64_t> converted;
  for (const std::int64_t nbytes : to_vector(sizes)) {
    if (nbytes < 0) throw Error(ErrorCode::invalid, "reserve_all: a negative size");
    converted.push_back(static_cast<std::uint64_t>(nbytes));
  }
  return without_gil([&] { return self.reserve_all(converted); });
}

void load(Store& self, const SavedSession& session, const std::vector<std::shared_ptr<PendingBlock>>& reservations, bool check_only) {
  without_gil([&] { self.load(session, reservations, check_only); });
}

}  // namespace

void bind_store_checkpoint(nb::class_<Store>& store) {
  store.def("save", [](Store& self) { return without_gil([&] { return self.save(); }); })
      .def("reserve_all", &reserve_all, nb::arg("sizes").noconvert())
      .def("load", &load, nb::arg("session"), nb::arg("reservations"), nb::kw_only(), nb::arg("check_only") = false);
}

}  // namespace tq::bind
