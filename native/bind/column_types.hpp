// What the codec's schemas say about columns that the core reads whole.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "bind/dlpack.hpp"
#include "core/store/columns.hpp"
#include "core/types.hpp"

namespace tq::bind {

struct ColumnType {
  ColumnKind kind = ColumnKind::bytes;
  ElementType element;
  std::vector<std::int64_t> row_shape;  // dense: of a row. ragged: of one step of the ragged dimension
  std::uint64_t unit_nbytes = 1;        // of that
  bool ragged_first = true;             // the ragged dimension is the first of a row's
  bool ready = false;                   // a dense column of this type needs nothing from the codec
  nanobind::object tag;                 // the codec's own, handed back with the column

  // Rows of both can stand in one dense or one bytes column.
  bool same_rows(const ColumnType& other) const {
    return kind == other.kind && element == other.element && row_shape == other.row_shape &&
           ragged_first == other.ragged_first;
  }
  // A ragged column can hold rows of this type along their first dimension; `step` is the shape of one step.
  bool has_steps(ElementType wanted, const std::int64_t* begin, const std::int64_t* end) const;
};

// Schema bytes -> type, asked of the codec once each. Touched under the GIL only.
class ColumnTypes {
 public:
  using Describe = nanobind::typed<nanobind::callable, nanobind::object(nanobind::bytes)>;

  using Adopt = nanobind::typed<nanobind::callable, nanobind::any(nanobind::any)>;

  ColumnTypes(Describe describe, Adopt adopt) : describe_(std::move(describe)), adopt_(std::move(adopt)) {}

  // Null: the codec reads such columns itself.
  std::shared_ptr<const ColumnType> of(const FieldLayout& layout);
  // A tensor of a DLPack capsule.
  nanobind::object adopt(const nanobind::object& capsule) const { return adopt_(capsule); }

 private:
  Describe describe_;
  Adopt adopt_;
  std::unordered_map<std::uint32_t, std::shared_ptr<const ColumnType>> by_id_;
};

}  // namespace tq::bind
