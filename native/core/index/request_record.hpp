// What is remembered of a change that a caller numbered (requests.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/types.hpp"

namespace tq {

using RequestId = std::array<char, 16>;  // the caller's; never the same for two requests

enum class RequestKind : std::uint8_t {
  other = 0,    // `reply` only
  publish = 1,  // indexes, partition_id, partition_version, shed_rows
  consume = 2,  // indexes: of task_commit
  claim = 3,    // indexes, fencing, deadline_ns; of extend_claim: fencing, deadline_ns
  clear = 4,    // rows: how many were cleared; -1: there was no such partition
};

struct RequestRecord {
  RequestKind kind = RequestKind::other;
  std::string reply;  // as given when the thread was armed
  std::vector<RowIndex> indexes;
  PartitionId partition_id = 0;
  std::uint64_t partition_version = 0;
  std::uint64_t shed_rows = 0;
  std::uint64_t fencing = 0;
  std::int64_t deadline_ns = 0;
  std::int64_t rows = 0;
};

}  // namespace tq
