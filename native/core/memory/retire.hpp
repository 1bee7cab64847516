// The retirer's half of the lease protocol (lease.hpp has the argument).
#pragma once

#include <span>
#include <vector>

#include "core/memory/block_table.hpp"
#include "core/memory/lease_directory.hpp"

namespace tq {

// `retired` are blocks that a *committed* transaction lists as retired. Sets their words (again, idempotently: whoever
// committed may have died before it did), fences once, scans once, and returns those that nobody holds: give exactly these
// to `index.free_retired`, which re-checks in a second transaction that they are still listed. A block whose word belongs to
// a later incarnation was freed by somebody else and is left out.
std::vector<BlockRef> unleased_of_retired(BlockTable& table, LeaseDirectory& directory, std::span<const BlockRef> retired);

}  // namespace tq
