#include "core/store/session_snapshot.hpp"

#include <string>
#include <utility>

#include "core/memory/fork_gate.hpp"

namespace tq {

SessionSnapshot::SessionSnapshot(Index::Snapshot snapshot, std::shared_ptr<const PayloadSegment> payload,
                                 std::vector<BlockLease> leases)
    : snapshot_(std::move(snapshot)), payload_(std::move(payload)), leases_(std::move(leases)) {}

const std::byte* SessionSnapshot::address(std::size_t block, std::uint64_t offset, std::uint64_t nbytes) const {
  const OperationGuard operation;
  const std::lock_guard lock(mutex_);
  if (released_) throw Error(ErrorCode::invalid, "the snapshot was released");
  if (block >= snapshot_.blocks.size()) {
    throw Error(ErrorCode::invalid, "block " + std::to_string(block) + " of a snapshot with " +
                                        std::to_string(snapshot_.blocks.size()));
  }
  const Span& span = snapshot_.blocks[block].span;
  if (offset > span.nbytes || nbytes > span.nbytes - offset) {
    throw Error(ErrorCode::invalid, "bytes outside of a block of " + std::to_string(span.nbytes));
  }
  if (!leases_[block].valid()) {
    throw Error(ErrorCode::closed, "the leases of this process were lost in a fork (no room for the hand-over)");
  }
  return payload_->region(span).readable(span) + offset;
}

void SessionSnapshot::release() {
  const OperationGuard operation;
  std::vector<BlockLease> leases;
  const std::lock_guard lock(mutex_);
  leases.swap(leases_);
  released_ = true;
}

}  // namespace tq
