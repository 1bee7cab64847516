// Which rows a call addresses, from its keyword arguments.
#pragma once

#include <optional>

#include "bind/arrays.hpp"
#include "bind/text.hpp"
#include "core/error.hpp"
#include "core/index/index.hpp"

namespace tq::bind {

// By index or by key, never both and never neither.
inline RowSelector existing_rows(const std::optional<IndexesArgument>& indexes, const std::optional<Strings>& keys,
                                 const char* call) {
  if (indexes.has_value() == keys.has_value()) {
    throw Error(ErrorCode::invalid, std::string(call) + ": give indexes or keys" + (keys ? ", not both" : ""));
  }
  RowSelector rows;
  if (indexes) {
    rows.by = RowsBy::index;
    rows.indexes = to_vector(*indexes);
  } else {
    rows.by = RowsBy::key;
    rows.keys = to_strings(*keys, "keys");
  }
  return rows;
}

// As above, or `count` new rows, or rows of given indexes and keys that are made.
inline RowSelector rows_to_put(std::int64_t count, const std::optional<IndexesArgument>& indexes,
                               const std::optional<Strings>& keys, const char* call,
                               bool create_rows = false) {
  if (indexes && keys && create_rows) {
    RowSelector rows = existing_rows(indexes, std::nullopt, call);
    rows.keys = to_strings(*keys, "keys");
    return rows;
  }
  if (indexes || keys) return existing_rows(indexes, keys, call);
  if (count < 0) throw Error(ErrorCode::invalid, std::string(call) + ": count is " + std::to_string(count));
  RowSelector rows;
  rows.by = RowsBy::fresh;
  rows.count = count;
  return rows;
}

}  // namespace tq::bind
