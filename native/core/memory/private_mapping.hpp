// A copy-on-write view of one block: a fresh MAP_PRIVATE|MAP_NORESERVE mapping of its pages. Reading copies nothing; a page
// that the process writes becomes its own. Two mappings never share a private page, so what one view's owner writes reaches
// nobody. An unwritten page shows the shared bytes, hence the block's lease lives as long as the mapping.
//
// The destructor unmaps (or queues the mapping to be kept: kept_mappings.hpp) and then releases the lease: no lock, no
// transaction, allowed on any thread, in the garbage collector and at interpreter exit. In that order: after the release the
// bytes may become somebody else's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/memory/fork_registry.hpp"
#include "core/memory/kept_mappings.hpp"
#include "core/memory/lease.hpp"
#include "core/memory/mapping_budget.hpp"
#include "core/memory/data_region.hpp"

namespace tq {

class PrivateMapping final : public ForkParticipant {
 public:
  // MappingLimitError: copy instead. Error(closed) when the lease is void (a child whose hand-over failed).
  static std::shared_ptr<PrivateMapping> map(std::shared_ptr<const DataRegion> payload, Span block, BlockLease lease);
  ~PrivateMapping() override;

  // Address of the block's byte `offset`; [offset, offset + nbytes) lies in the block, else Error(invalid).
  std::byte* at(std::uint64_t offset, std::uint64_t nbytes) const;

  // A child whose lease hand-over failed must not read bytes that may change under it: inaccessible.
  void after_fork_in_child() noexcept override;

 private:
  PrivateMapping(std::shared_ptr<const DataRegion> payload, Span block, BlockLease lease);

  // Order matters: members are destroyed backwards, after the destructor's munmap.
  std::shared_ptr<const DataRegion> payload_;
  BlockLease lease_;
  Span block_;
  std::unique_ptr<mapping_keeper::Node> node_;  // null: unmapped at once
  std::byte* base_ = nullptr;                   // page aligned
  std::uint64_t mapped_nbytes_ = 0;
  std::uint64_t lead_nbytes_ = 0;
};

// Read-only bytes of a block on the process's PROT_READ mapping; the pointer keeps lease and segment alive.
std::shared_ptr<const std::byte> read_only_view(std::shared_ptr<const DataRegion> payload, Span block, BlockLease lease,
                                                std::uint64_t offset, std::uint64_t nbytes);

}  // namespace tq
