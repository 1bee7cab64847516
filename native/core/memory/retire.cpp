#include "core/memory/retire.hpp"

#include "core/memory/fences.hpp"
#include "core/memory/fork_gate.hpp"
#include "core/pause.hpp"

namespace tq {

std::vector<BlockRef> unleased_of_retired(BlockTable& table, LeaseDirectory& directory, std::span<const BlockRef> retired) {
  const OperationGuard guard;
  std::vector<BlockRef> still_ours;
  still_ours.reserve(retired.size());
  for (const BlockRef block : retired) {
    if (table.set_retired(block)) still_ours.push_back(block);  // T1
  }
  full_fence();  // T2
  TQ_PAUSE("retire.before_scan");
  return directory.unleased(still_ours);  // T3
}

}  // namespace tq
