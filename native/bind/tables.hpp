// Structs of int64 only <-> int64 [rows, members].
#pragma once

#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "bind/arrays.hpp"
#include "core/error.hpp"

namespace tq::bind {

using TableArgument = nanobind::ndarray<const std::int64_t, nanobind::ndim<2>, nanobind::device::cpu, nanobind::c_contig>;

template <typename Row>
inline constexpr std::size_t n_columns = sizeof(Row) / sizeof(std::int64_t);

template <typename Row>
Array2<std::int64_t> to_table(const std::vector<Row>& rows) {
  static_assert(std::is_trivially_copyable_v<Row> && sizeof(Row) % sizeof(std::int64_t) == 0);
  std::vector<std::int64_t> values(rows.size() * n_columns<Row>);
  if (!rows.empty()) std::memcpy(values.data(), rows.data(), rows.size() * sizeof(Row));
  return to_array2(std::move(values), rows.size(), n_columns<Row>);
}

template <typename Row>
std::vector<Row> from_table(const TableArgument& table, const char* what) {
  static_assert(std::is_trivially_copyable_v<Row> && sizeof(Row) % sizeof(std::int64_t) == 0);
  if (table.shape(1) != n_columns<Row>) {
    throw Error(ErrorCode::invalid, std::string(what) + ": a table of " + std::to_string(table.shape(1)) + " columns, not " +
                                        std::to_string(n_columns<Row>));
  }
  std::vector<Row> rows(table.shape(0));
  if (!rows.empty()) std::memcpy(static_cast<void*>(rows.data()), table.data(), rows.size() * sizeof(Row));
  return rows;
}

}  // namespace tq::bind
