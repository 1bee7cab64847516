#include "bind/tensor_plan.hpp"

#include <nanobind/stl/vector.h>

#include <limits>
#include <memory>
#include <utility>

#include "bind/classes.hpp"
#include "bind/gil.hpp"
#include "core/error.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

std::uint64_t nbytes_of(ElementType element, const std::vector<std::int64_t>& shape) {
  if (element.bits == 0 || element.bits % 8 != 0) throw Error(ErrorCode::invalid, "an element of a tensor has whole bytes");
  std::uint64_t nbytes = element.bits / 8u;
  for (const std::int64_t size : shape) {
    if (size < 0) throw Error(ErrorCode::invalid, "a tensor has no negative size");
    const auto factor = static_cast<std::uint64_t>(size);
    if (factor != 0 && nbytes > std::numeric_limits<std::uint64_t>::max() / factor) {
      throw Error(ErrorCode::invalid, "a tensor of more bytes than there are addresses");
    }
    nbytes *= factor;
  }
  return nbytes;
}

}  // namespace

TensorPlan::TensorPlan(Adopt adopt, const nb::typed<nb::sequence, Column>& columns) : adopt_(std::move(adopt)), columns_(nb::borrow<Columns>(nb::list(columns))) {
  for (const nb::handle handle : columns_) {
    const auto column = nb::cast<nb::tuple>(handle);
    Part part{nb::cast<nb::str>(column[0]),
              {nb::cast<std::uint8_t>(column[1]), nb::cast<std::uint8_t>(column[2])},
              nb::cast<std::vector<std::int64_t>>(column[3])};
    const std::uint64_t nbytes = nbytes_of(part.element, part.shape);
    part.has_bytes = nbytes != 0;
    if (part.has_bytes) ranges_.emplace_back(nb::cast<std::uint64_t>(column[4]), nbytes);
    parts_.push_back(std::move(part));
  }
}

TensorPlan::Tensors TensorPlan::tensors(PendingBlock& block) const {
  const std::vector<std::shared_ptr<std::byte>> memory = without_gil([&] { return block.producer_tensors(ranges_); });
  Tensors result = nb::borrow<Tensors>(nb::dict());
  std::size_t next = 0;
  for (const Part& part : parts_) {
    std::shared_ptr<std::byte> bytes;
    if (part.has_bytes) bytes = memory[next++];
    void* data = bytes.get();
    result[part.name] = adopt_(to_capsule(data, part.element, part.shape, std::move(bytes)));
  }
  return result;
}

void bind_tensor_plan(nb::module_& module) {
  nb::class_<TensorPlan>(module, "TensorPlan", "The tensors over a block, described once for all allocations of one kind.")
      .def(nb::init<TensorPlan::Adopt, const nb::typed<nb::sequence, TensorPlan::Column>&>(), nb::arg("adopt"),
           nb::arg("columns"))
      .def_prop_ro("columns", &TensorPlan::columns);
}

}  // namespace tq::bind
