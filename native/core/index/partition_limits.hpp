// What a partition may hold, as callers say it and as they are told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/types.hpp"

namespace tq {

enum class WhenExceeded : std::uint8_t {
  wait,   // the caller tries again until its deadline
  shed,   // the oldest rows that nobody was given make room
  raise,  // the put fails at once
};

// What is asked for one name or pattern ("train*"). What it says nothing about comes from a less specific rule.
struct LimitRule {
  using Cap = std::optional<std::optional<std::uint64_t>>;  // nothing said | no cap | a cap
  Cap max_bytes;
  Cap max_unconsumed_rows;
  Cap max_version_lag;
  std::optional<std::vector<std::string>> consumers;
  std::optional<WhenExceeded> when_exceeded;
};

// What holds for one partition.
struct PartitionLimits {
  std::optional<std::uint64_t> max_bytes;            // of payload that its cells name, on other nodes too
  std::optional<std::uint64_t> max_unconsumed_rows;  // rows that not all of `consumers` have consumed
  std::optional<std::uint64_t> max_version_lag;      // newest version less that of the oldest such row
  std::vector<std::string> consumers;                // none: a row counts until any task consumed it
  WhenExceeded when_exceeded = WhenExceeded::wait;

  bool any() const { return max_bytes || max_unconsumed_rows || max_version_lag; }
  bool counts_rows() const { return max_unconsumed_rows || max_version_lag; }
};

struct LimitReport {
  bool partition_found = false;
  PartitionLimits limits;
  std::uint64_t live_bytes = 0;
  std::optional<std::int64_t> unconsumed_rows;  // only where limits ask for it, as are the versions
  std::optional<std::int64_t> newest_version;
  std::optional<std::int64_t> oldest_version;
  std::uint64_t shed_rows = 0;  // since the partition was made
};

}  // namespace tq
