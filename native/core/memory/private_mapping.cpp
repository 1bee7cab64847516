#include "core/memory/private_mapping.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "core/memory/fork_gate.hpp"
#include "core/memory/huge_pages.hpp"
#include "core/memory/mapping_budget.hpp"
#include "core/pause.hpp"

namespace tq {

namespace {

void require_valid(const BlockLease& lease, const DataRegion& payload) {
  if (lease && lease.valid()) return;
  throw Error(ErrorCode::closed, "no lease protects this view of the " + payload.name() +
                                     ": it was inherited by a fork whose leases could not be handed over");
}

std::uint64_t offset_in_block(Span block, std::uint64_t offset, std::uint64_t nbytes) {
  if (offset > block.nbytes || nbytes > block.nbytes - offset) {
    throw Error(ErrorCode::invalid, "bytes [" + std::to_string(offset) + ", + " + std::to_string(nbytes) +
                                        ") are not in a block of " + std::to_string(block.nbytes) + " bytes");
  }
  return offset;
}

std::byte* fresh_mapping(const DataRegion& payload, const DataRegion::FileRange& range) {
  const int fd = payload.fd();
  mapping_budget::acquire();
  TQ_PAUSE_NOTHROW("view.before_map");
  void* base = huge_pages::map_file(range.nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, range.offset);
  if (base != MAP_FAILED) return static_cast<std::byte*>(base);
  const int error = errno;
  mapping_budget::release();
  if (error == ENOMEM) throw MappingLimitError("no memory for a private mapping of " + std::to_string(range.nbytes) + " bytes");
  throw Error::system("cannot map a view of the " + payload.name(), error);
}

std::byte* map_range(const DataRegion& payload, const DataRegion::FileRange& range) {
  if (std::byte* kept = payload.kept().take(range.offset, range.nbytes)) return kept;
  try {
    return fresh_mapping(payload, range);
  } catch (const MappingLimitError&) {
    if (payload.kept().count() == 0 && payload.kept_shared().count() == 0) throw;
  }
  // What is in use comes before what is kept.
  payload.kept().clear();
  payload.kept_shared().clear();
  return fresh_mapping(payload, range);
}

}  // namespace

PrivateMapping::PrivateMapping(std::shared_ptr<const DataRegion> payload, Span block, BlockLease lease)
    : payload_(std::move(payload)), lease_(std::move(lease)), block_(block) {
  require_valid(lease_, *payload_);
  const DataRegion::FileRange range = payload_->huge_pages_around(block);
  base_ = map_range(*payload_, range);
  mapped_nbytes_ = range.nbytes;
  lead_nbytes_ = range.lead_nbytes;
  if (range.nbytes < mapping_keeper::worth_keeping_nbytes || !mapping_keeper::start()) return;
  try {
    node_ = std::make_unique<mapping_keeper::Node>(
        mapping_keeper::Node{payload_, {base_, range.offset, range.nbytes}, nullptr});
  } catch (const std::bad_alloc&) {
    // Then it is not kept.
  }
}

std::shared_ptr<PrivateMapping> PrivateMapping::map(std::shared_ptr<const DataRegion> payload, Span block, BlockLease lease) {
  const OperationGuard guard;
  return std::shared_ptr<PrivateMapping>(new PrivateMapping(std::move(payload), block, std::move(lease)), GuardedDelete{});
}

PrivateMapping::~PrivateMapping() {
  TQ_PAUSE_NOTHROW("view.before_unmap");
  if (node_ && mapping_keeper::running()) {
    mapping_keeper::retire(std::move(node_));
  } else {
    mapping_budget::unmap(base_, mapped_nbytes_);
  }
  TQ_PAUSE_NOTHROW("view.unmapped");  // the lease is still held
}

std::byte* PrivateMapping::at(std::uint64_t offset, std::uint64_t nbytes) const {
  return base_ + lead_nbytes_ + offset_in_block(block_, offset, nbytes);
}

void PrivateMapping::after_fork_in_child() noexcept {
  if (lease_.valid()) return;
  ::mprotect(base_, mapped_nbytes_, PROT_NONE);
  node_.reset();
}

namespace {

// The read-only mapping belongs to the process; what is kept per view is its claim.
struct ReadOnlyView final : ForkParticipant {
  std::shared_ptr<const DataRegion> payload;
  BlockLease lease;
  Span block;

  ReadOnlyView(std::shared_ptr<const DataRegion> payload, BlockLease lease, Span block)
      : payload(std::move(payload)), lease(std::move(lease)), block(block) {}
  void after_fork_in_child() noexcept override {
    if (lease.valid()) return;
    const DataRegion::FileRange range = payload->pages_around(block);
    ::mprotect(const_cast<std::byte*>(payload->readable(block)) - range.lead_nbytes, range.nbytes, PROT_NONE);
  }
};

}  // namespace

std::shared_ptr<const std::byte> read_only_view(std::shared_ptr<const DataRegion> payload, Span block, BlockLease lease,
                                                std::uint64_t offset, std::uint64_t nbytes) {
  require_valid(lease, *payload);
  const std::byte* begin = payload->readable(block) + offset_in_block(block, offset, nbytes);
  return {make_guarded<ReadOnlyView>(std::move(payload), std::move(lease), block), begin};
}

}  // namespace tq
