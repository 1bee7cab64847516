// The store's side of a checkpoint: the whole session leased at one snapshot, room for another one, and the switch to it.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/memory/lease.hpp"
#include "core/memory/wake.hpp"
#include "core/pause.hpp"
#include "core/store/give_back.hpp"
#include "core/store/layout_check.hpp"
#include "core/store/room.hpp"
#include "core/store/spill.hpp"
#include "core/store/store.hpp"

namespace tq {

namespace {

// Smaller blocks are reserved in groups, one transaction each, cut from one extent.
constexpr std::uint64_t own_extent_from = 64u << 10;
constexpr std::size_t group_blocks = 512;

// What Index::reserve would make of it.
std::uint64_t rounded(std::uint64_t nbytes) {
  const std::uint64_t unit = nbytes >= own_extent_from ? 4096 : 64;
  return std::max<std::uint64_t>((nbytes + unit - 1) / unit * unit, 64);
}

// The leases of those of `refs` (ascending) that `blocks` names, in the order of `blocks`.
std::vector<BlockLease> leases_of(const std::vector<BlockInfo>& blocks, const std::vector<BlockRef>& refs,
                                  const std::vector<BlockLease>& leases) {
  std::vector<BlockLease> chosen;
  chosen.reserve(blocks.size());
  for (const BlockInfo& block : blocks) {
    const auto at = std::lower_bound(refs.begin(), refs.end(), block.ref,
                                     [](BlockRef a, BlockRef b) { return a.word < b.word; });
    if (at == refs.end() || !(*at == block.ref)) throw Error(ErrorCode::corrupt, "a cell names a block that is not published");
    chosen.push_back(leases[static_cast<std::size_t>(at - refs.begin())]);
  }
  return chosen;
}

// Reservations made so far; given back unless they are kept.
class Reserved {
 public:
  Reserved(Attachment& attachment, Index& index, OwnerId owner) : attachment_(attachment), index_(index), owner_(owner) {}
  ~Reserved() {
    if (all.empty()) return;
    try {
      for (std::size_t at = 0; at < all.size(); at += group_blocks) {
        const auto first = all.begin() + static_cast<std::ptrdiff_t>(at);
        index_.abandon_all({first, first + static_cast<std::ptrdiff_t>(std::min(group_blocks, all.size() - at))}, owner_);
      }
      bump_word(room_word(*attachment_.control));
    } catch (const Error&) {
      // The write gate is stuck: they stay pending under this process's lease file, and go to whoever reaps it.
    }
  }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;

  std::vector<Reservation> all;

 private:
  Attachment& attachment_;
  Index& index_;
  OwnerId owner_;
};

}  // namespace

std::shared_ptr<SessionSnapshot> Store::save() {
  Attachment& attachment = *attachment_;
  const Call call(attachment);
  std::vector<BlockRef> refs;
  std::vector<BlockLease> leases;
  std::optional<Index::Snapshot> snapshot;
  for (int round = 0; round < snapshot_rounds && !snapshot; ++round) {
    snapshot = call.index().save([&](const std::vector<BlockRef>& published) {
      refs = published;
      TQ_PAUSE("save.after_blocks");
      auto found = lease_blocks(attachment.table, attachment.leases, refs);
      if (found) leases = std::move(*found);
      return found.has_value();
    });
  }
  if (!snapshot) {
    // Writers keep retiring what we find. Inside the write transaction none can commit, so this round cannot fail.
    snapshot = call.index().save(
        [&](const std::vector<BlockRef>& published) {
          refs = published;
          leases.clear();
          leases.reserve(refs.size());
          for (const BlockRef block : refs) leases.push_back(lease_own_block(attachment.leases, block));
          return true;
        },
        true);
  }
  TQ_PAUSE("save.after_snapshot");
  std::vector<BlockLease> chosen = leases_of(snapshot->blocks, refs, leases);
  return std::make_shared<SessionSnapshot>(std::move(*snapshot), attachment.payload, std::move(chosen));
}

std::vector<std::shared_ptr<PendingBlock>> Store::reserve_all(const std::vector<std::uint64_t>& sizes) {
  Attachment& attachment = *attachment_;
  const Call call(attachment);
  Index& index = call.index();
  drain_give_back(attachment, index);
  const OwnerId owner = attachment.leases->owner();
  std::uint64_t wanted = 0;
  for (const std::uint64_t nbytes : sizes) {
    const std::uint64_t more = nbytes > attachment.payload->payload_bytes() ? nbytes : rounded(nbytes);
    wanted = more > ~std::uint64_t{0} - wanted ? ~std::uint64_t{0} : wanted + more;
  }
  const IndexStats stats = index.stats();
  const std::uint64_t on_disk = stats.spill_total_bytes - std::min(stats.spill_total_bytes, stats.spill_used_bytes);
  const std::uint64_t not_backed = attachment.payload->payload_bytes() - std::min(attachment.payload->payload_bytes(), stats.reserved_bytes);
  if (wanted > stats.free_bytes + stats.retired_bytes + stats.ahead_bytes + stats.pending_bytes + not_backed + on_disk) {
    throw no_room(attachment, index, wanted);
  }

  // Large ones first: they need free extents of their size, small ones fit between them.
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  Reserved reserved(attachment, index, owner);
  for (std::size_t at = 0; at < order.size();) {
    std::vector<std::uint64_t> parts;
    std::uint64_t nbytes = 0;
    do {
      parts.push_back(rounded(sizes[order[at++]]));
      nbytes += parts.back();
    } while (parts.back() < own_extent_from && at < order.size() && parts.size() < group_blocks);
    std::optional<Reservation> whole;
    if (nbytes <= attachment.payload->payload_bytes()) whole = find_room(attachment, index, nbytes, owner);
    if (!whole) whole = find_spill_room(attachment, index, nbytes, owner);
    if (!whole) throw no_room(attachment, index, wanted);
    reserved.all.push_back(*whole);
    if (parts.size() == 1) continue;
    const std::vector<Reservation> split = index.split(*whole, owner, parts);
    reserved.all.pop_back();
    reserved.all.insert(reserved.all.end(), split.begin(), split.end());
    for (const Reservation& part : split) attachment.table.ensure(part.block);
  }
  std::vector<std::shared_ptr<PendingBlock>> blocks(sizes.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    blocks[order[i]] = std::make_shared<PendingBlock>(attachment_, reserved.all[i], owner, std::chrono::steady_clock::now());
  }
  reserved.all.clear();
  return blocks;
}

void Store::load(const SavedSession& session, const std::vector<std::shared_ptr<PendingBlock>>& blocks, bool check_only) {
  Attachment& attachment = *attachment_;
  const Call call(attachment);
  Index& index = call.index();
  drain_give_back(attachment, index);
  if (blocks.size() != session.blocks.size()) {
    throw Error(ErrorCode::invalid, std::to_string(session.blocks.size()) + " blocks were given " +
                                        std::to_string(blocks.size()) + " reservations");
  }
  std::vector<Reservation> reservations;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (!blocks[b] || !blocks[b]->belongs_to(attachment)) throw Error(ErrorCode::invalid, "load: a reservation of another store");
    check_layouts(session.blocks[b].fields, blocks[b]->nbytes(), session.blocks[b].n_rows);
    reservations.push_back(blocks[b]->reservation());
  }
  std::vector<std::uint64_t> refs;
  for (const Reservation& reservation : reservations) refs.push_back(reservation.block.word);
  std::sort(refs.begin(), refs.end());
  // Each is locked below: one that stands twice would wait for itself.
  if (std::adjacent_find(refs.begin(), refs.end()) != refs.end()) throw Error(ErrorCode::invalid, "load: a reservation stands twice");

  if (check_only) return index.check_replacement(session, reservations);
  const std::vector<std::string> before = index.partitions();
  {
    std::vector<std::unique_ptr<PendingBlock::Publication>> publications;
    publications.reserve(blocks.size());
    for (const auto& block : blocks) publications.push_back(std::make_unique<PendingBlock::Publication>(*block));
    TQ_PAUSE("load.before_commit");
    // The bytes and the words before the index entries, as in a put.
    index.replace(session, reservations, attachment.leases->owner());
    for (const auto& publication : publications) publication->committed();
  }
  TQ_PAUSE("load.after_commit");
  for (const std::string& name : before) wake_partition(*attachment.control, name);
  for (const std::string& name : session.partitions) wake_partition(*attachment.control, name);
  try {
    retire_blocks(attachment, index, index.finish_clears());
  } catch (const Error&) {
    // The rows are loaded. What is left of the old ones is on the list of doomed partitions: any reclaim goes on with it.
  }
}

}  // namespace tq
