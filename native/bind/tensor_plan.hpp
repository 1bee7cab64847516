// The tensors over a block, described once for all allocations of one kind.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bind/dlpack.hpp"
#include "core/store/pending_block.hpp"

namespace tq::bind {

// Touched under the GIL only.
class TensorPlan {
 public:
  // (name, DLPack type code, bits, shape, offset in the block)
  using Shape = nanobind::typed<nanobind::tuple, int, nanobind::ellipsis>;
  using Column = nanobind::typed<nanobind::tuple, nanobind::str, int, int, Shape, int>;
  using Columns = nanobind::typed<nanobind::list, Column>;
  using Adopt = nanobind::typed<nanobind::callable, nanobind::any(nanobind::any)>;
  using Tensors = nanobind::typed<nanobind::dict, nanobind::str, nanobind::any>;

  // Error(invalid): a negative size, an element of no whole bytes.
  TensorPlan(Adopt adopt, const nanobind::typed<nanobind::sequence, Column>& columns);

  // Tensors on the producer's mapping; those without bytes hold nothing of it.
  Tensors tensors(PendingBlock& block) const;
  Columns columns() const { return columns_; }

 private:
  struct Part {
    nanobind::str name;
    ElementType element;
    std::vector<std::int64_t> shape;
    bool has_bytes = false;
  };

  Adopt adopt_;
  Columns columns_;
  std::vector<Part> parts_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges_;  // of those with bytes
};

}  // namespace tq::bind
