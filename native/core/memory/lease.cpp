#include "core/memory/lease.hpp"

#include "core/memory/fences.hpp"
#include "core/memory/fork_gate.hpp"
#include "core/memory/lease_clock.hpp"
#include "core/pause.hpp"

namespace tq {

struct BlockLease::Claim {
  std::shared_ptr<LeaseFile> leases;
  std::uint32_t entry;
  BlockRef block;

  Claim(const std::shared_ptr<LeaseFile>& leases, BlockRef block, std::int64_t since_ns)
      : leases(leases), entry(leases->take(block, since_ns)), block(block) {}
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  ~Claim() {
    TQ_PAUSE_NOTHROW("lease.before_release");
    leases->release(entry);
  }
};

BlockRef BlockLease::block() const noexcept { return claim_ == nullptr ? BlockRef{} : claim_->block; }

bool BlockLease::valid() const noexcept { return claim_ != nullptr && !claim_->leases->claims_void(); }

std::optional<std::vector<BlockLease>> lease_blocks(const BlockTable& table, const std::shared_ptr<LeaseFile>& leases,
                                                    std::span<const BlockRef> blocks) {
  const OperationGuard guard;
  std::vector<BlockLease> claimed(blocks.size());
  TQ_PAUSE("lease.before_store");  // resolved, not yet leased: the block may be freed and reused here
  const std::int64_t now_ns = lease_clock_ns();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    claimed[i].claim_ = make_guarded<BlockLease::Claim>(leases, blocks[i], now_ns);  // R1
  }
  full_fence();  // R2
  TQ_PAUSE("lease.before_recheck");
  for (const BlockRef block : blocks) {
    if (!table.is_live(block)) return std::nullopt;  // R3
  }
  return claimed;
}

BlockLease lease_own_block(const std::shared_ptr<LeaseFile>& leases, BlockRef block) {
  BlockLease lease;
  lease.claim_ = make_guarded<BlockLease::Claim>(leases, block, lease_clock_ns());
  full_fence();
  return lease;
}

}  // namespace tq
