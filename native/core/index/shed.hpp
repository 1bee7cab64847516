// Rows that make room for others where limits say so: the oldest ones (by global index) that no task was ever given and
// nobody has claimed for any task. So whoever holds metadata from a fetch or a claim keeps its rows; views stay as they are,
// since shedding is a clear.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/index/flow_account.hpp"
#include "core/types.hpp"

namespace tq::index {

struct ShedOrder {
  std::int64_t rows = 0;                       // how many at most
  std::optional<std::int64_t> before_version;  // only rows of a lower version of the weights
  std::vector<RowIndex> spared;                // those of the put that needs the room, ascending
  bool all_or_none = false;                    // fewer than `rows` would be of no use
};

struct Shed {
  std::int64_t rows = 0;
  std::vector<BlockRef> retired;
  bool more = false;  // more rows would have to go than one transaction should touch
};

}  // namespace tq::index
