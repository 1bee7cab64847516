#include "bind/column_types.hpp"

#include <nanobind/stl/vector.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "bind/bytes.hpp"
#include "bind/classes.hpp"
#include "core/error.hpp"

namespace nb = nanobind;

namespace tq::bind {

namespace {

// A schema a row, where rows differ in shape: a loop of many weeks must not keep them all.
constexpr std::size_t known_limit = 1u << 16;

std::uint64_t nbytes_of(ElementType element, const std::vector<std::int64_t>& shape) {
  std::uint64_t nbytes = element.bits / 8u;
  for (const std::int64_t size : shape) {
    if (size <= 0 || nbytes > std::numeric_limits<std::uint64_t>::max() / static_cast<std::uint64_t>(size)) return 0;
    nbytes *= static_cast<std::uint64_t>(size);
  }
  return nbytes;
}

std::shared_ptr<const ColumnType> to_type(const nb::object& described) {
  if (described.is_none()) return nullptr;
  const nb::tuple parts = nb::cast<nb::tuple>(described);
  auto type = std::make_shared<ColumnType>();
  const int kind = nb::cast<int>(parts[0]);
  if (kind < 0 || kind > static_cast<int>(ColumnKind::bytes)) {
    throw Error(ErrorCode::invalid, "a column kind is " + std::to_string(kind));
  }
  type->kind = static_cast<ColumnKind>(kind);
  type->element = {nb::cast<std::uint8_t>(parts[1]), nb::cast<std::uint8_t>(parts[2])};
  type->row_shape = nb::cast<std::vector<std::int64_t>>(parts[3]);
  type->ragged_first = nb::cast<bool>(parts[4]);
  type->ready = nb::cast<bool>(parts[5]);
  type->tag = parts[6];
  type->unit_nbytes = type->kind == ColumnKind::bytes ? 1 : nbytes_of(type->element, type->row_shape);
  return type->unit_nbytes == 0 ? nullptr : type;
}

}  // namespace

bool ColumnType::has_steps(ElementType wanted, const std::int64_t* begin, const std::int64_t* end) const {
  if (kind == ColumnKind::bytes || element != wanted) return false;
  if (kind == ColumnKind::ragged) return ragged_first && std::equal(row_shape.begin(), row_shape.end(), begin, end);
  return !row_shape.empty() && std::equal(row_shape.begin() + 1, row_shape.end(), begin, end);
}

std::shared_ptr<const ColumnType> ColumnTypes::of(const FieldLayout& layout) {
  const auto found = by_id_.find(layout.schema_id);
  if (found != by_id_.end()) return found->second;
  std::shared_ptr<const ColumnType> type = to_type(describe_(to_bytes(layout.schema)));
  if (by_id_.size() >= known_limit) by_id_.clear();
  by_id_.emplace(layout.schema_id, type);
  return type;
}

void bind_column_types(nb::module_& module) {
  module.attr("COLUMN_DENSE") = static_cast<int>(ColumnKind::dense);
  module.attr("COLUMN_RAGGED") = static_cast<int>(ColumnKind::ragged);
  module.attr("COLUMN_BYTES") = static_cast<int>(ColumnKind::bytes);
  nb::class_<ColumnTypes>(module, "ColumnTypes", "How fields are read whole, by the bytes of their schema.")
      .def(nb::init<ColumnTypes::Describe, ColumnTypes::Adopt>(), nb::arg("describe"), nb::arg("adopt"));
}

}  // namespace tq::bind
