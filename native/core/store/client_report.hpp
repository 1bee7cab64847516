// What the statistics say about one client, and about what it leases.
#pragma once

#include <cstdint>

#include "core/index/index.hpp"
#include "core/types.hpp"

namespace tq {

struct ClientReport {
  OwnerId owner = 0;
  std::int64_t pid = 0;
  double start_time_s = 0;  // since boot, of the process
  bool alive = false;
  std::uint64_t leases = 0;         // claims: a block claimed twice counts twice
  std::uint64_t leased_bytes = 0;   // of the distinct blocks behind them
  std::uint64_t pending_bytes = 0;  // reserved and not yet published
  double age_s = 0;
};

// The claims of one client on one block.
struct LeaseReport {
  BlockRef block;
  Index::BlockFacts facts;
  OwnerId owner = 0;
  std::int64_t pid = 0;
  double start_time_s = 0;
  bool alive = false;
  std::uint64_t claims = 0;
  double age_s = 0;  // of the oldest of them
};

}  // namespace tq
