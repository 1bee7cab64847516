// A whole session as it was at one commit, and the bytes behind it, leased.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/index/index.hpp"
#include "core/memory/lease.hpp"
#include "core/memory/payload_segment.hpp"

namespace tq {

// Thread-safe; outlives its store. Blocks that rows of the session name are neither freed nor moved while it lives.
class SessionSnapshot {
 public:
  SessionSnapshot(Index::Snapshot snapshot, std::shared_ptr<const PayloadSegment> payload, std::vector<BlockLease> leases);
  SessionSnapshot(const SessionSnapshot&) = delete;
  SessionSnapshot& operator=(const SessionSnapshot&) = delete;

  const SavedSession& session() const noexcept { return snapshot_.session; }
  const std::vector<Index::SavedPart>& parts() const noexcept { return snapshot_.parts; }
  // On the read-only mapping, valid while this lives and was not released. Error(invalid): outside of the block, or released.
  const std::byte* address(std::size_t block, std::uint64_t offset, std::uint64_t nbytes) const;
  // Drops the leases now.
  void release();

 private:
  const Index::Snapshot snapshot_;
  const std::shared_ptr<const PayloadSegment> payload_;
  mutable std::mutex mutex_;
  std::vector<BlockLease> leases_;
  bool released_ = false;
};

}  // namespace tq
