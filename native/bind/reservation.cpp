#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "bind/classes.hpp"
#include "bind/dlpack.hpp"
#include "bind/gil.hpp"
#include "bind/tensor_plan.hpp"
#include "core/store/pending_block.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

using WriteTuple = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;

void copy_in(PendingBlock& self, const nb::typed<nb::sequence, WriteTuple>& writes) {
  const auto tuples = nb::cast<std::vector<WriteTuple>>(writes);
  std::vector<Write> converted;
  converted.reserve(tuples.size());
  for (const auto& [offset, source, nbytes] : tuples) converted.push_back({offset, source, nbytes});
  without_gil([&] { self.copy_in(converted); });
}

nb::object writable(PendingBlock& self, std::uint64_t offset, std::uint64_t nbytes) {
  const std::shared_ptr<std::byte> bytes = without_gil([&] { return self.writable(offset, nbytes); });
  return to_capsule(bytes.get(), nbytes, bytes);
}

nb::object producer_tensor(PendingBlock& self, std::uint64_t offset, std::uint64_t nbytes) {
  const std::shared_ptr<std::byte> bytes = without_gil([&] { return self.producer_tensor(offset, nbytes); });
  return to_capsule(bytes.get(), nbytes, bytes);
}

}  // namespace

void bind_reservation(nb::module_& module) {
  nb::class_<PendingBlock>(module, "Reservation",
                           "A pending extent. Dropped unpublished, it is given back at the next call.")
      .def_prop_ro("offset", [](const PendingBlock& self) { return self.reservation().span.offset; })
      .def_prop_ro("nbytes", &PendingBlock::nbytes)
      .def_prop_ro("spilled", [](const PendingBlock& self) { return self.reservation().span.spilled(); })
      .def("copy_in", &copy_in, nb::arg("writes"))
      .def("writable", &writable, nb::arg("offset"), nb::arg("nbytes"))
      .def("map_for_producer", nogil(&PendingBlock::map_for_producer))
      .def("producer_tensor", &producer_tensor, nb::arg("offset"), nb::arg("nbytes"))
      .def("producer_tensors", [](PendingBlock& self, const TensorPlan& plan) { return plan.tensors(self); }, nb::arg("plan"))
      .def("producer_tensors_alive", nogil(&PendingBlock::producer_tensors_alive))
      .def("abandon", nogil(&PendingBlock::abandon));
}

}  // namespace tq::bind
