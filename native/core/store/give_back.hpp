// How space returns: extents given up by their producer, blocks that nobody reads any more, what the dead left.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/store/attachment.hpp"

namespace tq {

// Gives back what deleters queued. One relaxed load when there is nothing.
void drain_give_back(Attachment& attachment, Index& index);
// The same, unless another process keeps the write gate, or all pages of the index: then it is left to a later call. For calls that must not stall, and for
// those that clean up after an error, which is the one to tell.
void drain_if_free(Attachment& attachment, Index& index);

// The retire protocol for blocks that a committed transaction listed as retired: words, fence, scan, free. Those that
// somebody still reads stay listed. Bytes freed.
std::uint64_t retire_blocks(Attachment& attachment, Index& index, const std::vector<BlockRef>& retired);

// The same after a commit that already did what its caller asked for: whatever goes wrong here (a stuck gate, no descriptors
// left for the scan) must not make it look undone. The blocks stay listed, and every reclaim tries again.
void retire_after_commit(Attachment& attachment, Index& index, const std::vector<BlockRef>& retired) noexcept;

// Pending extents of dead processes given back, their lease files removed: (owner, pid) each.
std::vector<std::pair<OwnerId, std::int64_t>> reap_dead(Attachment& attachment, Index& index);

// All of the above for the whole session, and clears that a dead process left half-done. Bytes freed.
std::uint64_t reclaim_all(Attachment& attachment, Index& index);

}  // namespace tq
