// Whether a put exceeds the limits of its partition, and the error that says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/error.hpp"
#include "core/index/flow_account.hpp"

namespace tq::index {

// Figures before and with the put. A limit is exceeded only by a put that makes its own figure larger: what stands on rows that
// are there already, or lowers a figure that is too high, is never refused for it.
struct Demand {
  std::uint64_t bytes_before = 0;
  std::uint64_t bytes_after = 0;
  std::uint64_t own_bytes = 0;  // of its own block
  std::int64_t rows_before = 0;
  std::int64_t new_rows = 0;
  std::optional<std::int64_t> newest_after;  // of the versions of the weights, when the put brings one
  std::optional<std::int64_t> oldest_after;
  std::optional<std::int64_t> own_oldest;
};

struct Excess {
  const char* limit;  // name of the setting
  std::uint64_t cap = 0;
  std::uint64_t there = 0;
  std::uint64_t wanted = 0;
  bool never = false;  // whatever is cleared or consumed
};

std::optional<Excess> find_excess(const PartitionLimits& limits, const Demand& demand);
Error limit_error(const std::string& partition, const PartitionLimits& limits, const Excess& excess);

}  // namespace tq::index
