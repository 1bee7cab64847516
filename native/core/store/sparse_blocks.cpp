// What lives of the blocks that are not wholly named any more, to the byte: a share of cells says little where rows differ in
// size or fields do.
#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/memory/field_rows.hpp"
#include "core/memory/lease.hpp"
#include "core/memory/spill_file.hpp"
#include "core/store/give_back.hpp"
#include "core/store/room.hpp"
#include "core/store/store.hpp"

namespace tq {

namespace {

constexpr std::size_t leased_at_once = 128;

// Who holds a claim now; one that ends or begins later shows when the block is retired.
std::vector<BlockRef> leased_now(LeaseDirectory& directory) {
  std::vector<BlockRef> leased;
  for (const ClientInfo& client : directory.clients()) {
    if (!client.alive) continue;
    for (const HeldLease& held : client.leased) leased.push_back(held.block);
  }
  return leased;
}

void mark_leased(LeaseDirectory& directory, SparseBlocks& found) {
  std::unordered_set<std::uint64_t> leased;
  for (const BlockRef block : leased_now(directory)) leased.insert(block.word);
  for (SparseBlocks::Block& block : found.blocks) block.leased = leased.contains(block.ref.word);
}

std::uint64_t nbytes_of(const PayloadSegment& payload, const SparseBlocks::Block& block, const SparseBlocks::Shape& shape,
                        const SparseBlocks::Range& range) {
  std::uint64_t nbytes = 0;
  for (const auto& layout : shape.fields) {
    const auto rows = static_cast<std::uint64_t>(range.count);
    if (layout->kind == FieldKind::dense) {
      nbytes += layout->row_nbytes * rows;
    } else if (layout->kind == FieldKind::ragged) {
      const FieldInBlock field{payload.region(block.span).readable(block.span), block.span.nbytes, block.n_rows, layout.get()};
      nbytes += FieldRows(field, {0, range.count, 0, range.block_row}).rows(range.block_row, range.count).nbytes + 8 * rows;
    } else {
      nbytes += layout->data_nbytes;  // one blob: no part of it can be given up
    }
  }
  return nbytes;
}

}  // namespace

SparseBlocks Store::sparse_blocks(BlockRef after, std::optional<Span> within, bool spilled) {
  Attachment& attachment = *attachment_;
  const Call call(attachment);
  // Offsets of rows are read through a mapping of the file.
  if (spilled && attachment.payload->spill() != nullptr) attachment.payload->spill()->check_length();
  SparseBlocks found = call.index().sparse_blocks(after, within, spilled);
  if (found.blocks.empty()) return found;
  mark_leased(attachment.lease_directory, found);
  std::vector<std::vector<std::size_t>> ranges_of(found.blocks.size());
  for (std::size_t r = 0; r < found.ranges.size(); ++r) {
    ranges_of[static_cast<std::size_t>(found.shapes[static_cast<std::size_t>(found.ranges[r].shape)].block)].push_back(r);
  }
  // Offsets are payload, which is only read under a lease.
  for (std::size_t begin = 0; begin < found.blocks.size(); begin += leased_at_once) {
    const std::size_t end = std::min(begin + leased_at_once, found.blocks.size());
    std::vector<BlockLease> leases;
    for (std::size_t b = begin; b < end; ++b) {
      SparseBlocks::Block& block = found.blocks[b];
      if (block.leased) continue;
      auto lease = lease_blocks(attachment.table, attachment.leases, {&block.ref, 1});
      if (!lease) {
        ranges_of[b].clear();  // its last row went
        continue;
      }
      leases.push_back(std::move(lease->front()));
      for (const std::size_t r : ranges_of[b]) {
        const SparseBlocks::Range& range = found.ranges[r];
        block.live_bytes += nbytes_of(*attachment.payload, block, found.shapes[static_cast<std::size_t>(range.shape)], range);
      }
    }
  }
  return found;
}

std::optional<Span> Store::cheapest_window(std::uint64_t nbytes) {
  Attachment& attachment = *attachment_;
  const Call call(attachment);
  if (nbytes > attachment.payload->payload_bytes()) return std::nullopt;
  return call.index().cheapest_window(nbytes, leased_now(attachment.lease_directory));
}

std::optional<Span> Store::cheapest_run(std::uint64_t nbytes, std::uint64_t most_moved) {
  Attachment& attachment = *attachment_;
  const Call call(attachment);
  return call.index().cheapest_run(nbytes, most_moved, leased_now(attachment.lease_directory));
}

std::shared_ptr<PendingBlock> Store::reserve_from(Span span) {
  Attachment& attachment = *attachment_;
  const Call call(attachment);
  drain_give_back(attachment, call.index());
  const OwnerId owner = attachment.leases->owner();
  const auto reservation = find_room_from(attachment, call.index(), span, owner);
  if (!reservation) return nullptr;
  return std::make_shared<PendingBlock>(attachment_, *reservation, owner, std::chrono::steady_clock::now());
}

std::vector<std::shared_ptr<PendingBlock>> Store::reserve_within(Span window) {
  Attachment& attachment = *attachment_;
  const Call call(attachment);
  drain_give_back(attachment, call.index());
  const OwnerId owner = attachment.leases->owner();
  const std::vector<Reservation> reservations = call.index().reserve_within(window, owner);
  try {
    for (const Reservation& reservation : reservations) attachment.table.ensure(reservation.block);
  } catch (...) {
    call.index().abandon_all(reservations, owner);
    throw;
  }
  std::vector<std::shared_ptr<PendingBlock>> held;
  for (const Reservation& reservation : reservations) {
    held.push_back(std::make_shared<PendingBlock>(attachment_, reservation, owner, std::chrono::steady_clock::now()));
  }
  return held;
}

}  // namespace tq
