// Leases: how a reader claims blocks so that their space is not reused under it.
//
// The protocol (`lease_blocks`), against a retirer (retire.hpp):
//      reader                                 retirer (after the commit that removed the last cell)
//   R1 stores a claim per block           T1  sets the block's word to (generation, retired)
//   R2 full fence                         T2  full fence
//   R3 re-reads every block's word        T3  reads the lease files; no claim: frees the extent
// Both fences are sequentially consistent. If R2 is first, T3 sees R1's claim and the block is not freed. If T2 is first, R3
// sees T1's word and the reader drops everything and resolves again. Either way a block that a reader uses is not freed, and a
// freed block has no successful reader. The word read in R3 is the one that set_live stored, so its load (acquire) also
// makes the bytes visible.
//
// A claim is only ever made by this protocol, or shared by copying a BlockLease. Copying an *entry* to another place and then
// clearing the first would let a scan that passes the new place before and the old one after see neither; the hand-over at
// fork, which must do exactly that, is covered by a counter (lease_directory.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/memory/block_table.hpp"
#include "core/memory/lease_file.hpp"
#include "core/types.hpp"

namespace tq {

// A claim on one block, shared by everything that reads it. The last copy releases the entry, on whatever thread that is.
// Copying is as cheap as a shared_ptr. Empty by default.
class BlockLease {
 public:
  BlockLease() = default;
  BlockRef block() const noexcept;
  explicit operator bool() const noexcept { return claim_ != nullptr; }
  // False in a forked child whose hand-over failed: do not read the block.
  bool valid() const noexcept;
  void reset() noexcept { claim_.reset(); }

 private:
  struct Claim;
  friend std::optional<std::vector<BlockLease>> lease_blocks(const BlockTable&, const std::shared_ptr<LeaseFile>&,
                                                             std::span<const BlockRef>);
  friend BlockLease lease_own_block(const std::shared_ptr<LeaseFile>&, BlockRef);
  std::shared_ptr<const Claim> claim_;
};

// One lease per block, in order; nullopt when any block is no longer live (nothing is held then: resolve again).
// Inside an operation. Error(storage_full) when the lease file is full.
std::optional<std::vector<BlockLease>> lease_blocks(const BlockTable& table, const std::shared_ptr<LeaseFile>& leases,
                                                    std::span<const BlockRef> blocks);

// How often whoever leases what it resolved is overtaken by retirements before it does so inside the write transaction.
inline constexpr int snapshot_rounds = 8;

// A claim without re-check, for a block that cannot be retired yet: the caller's own reservation before its commit, or any
// block found inside the write transaction (no retirement can commit there, and the word of a retired block of an earlier
// commit is not in a resolution). The claim is fenced before this returns.
BlockLease lease_own_block(const std::shared_ptr<LeaseFile>& leases, BlockRef block);

}  // namespace tq
