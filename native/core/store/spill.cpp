// The life of a move, and what is left when its process dies in it:
//   reserve_spill        the new block is pending under this process's lease file            reaped: the place is free again
//   lease the old block  it is neither freed nor moved by others meanwhile                   the lease ends with the process
//   write                through the page cache, which every mapping of the file shows       reaped
//   set_live(new)        release: a reader that finds the word (acquire) finds the bytes     reaped, word set free
//   publish_spilled      one commit: every cell of the old block names the new one           -
//   retire the old       word, fence, scan, free, as for any block that lost its last cell   listed: anybody's reclaim goes on
// pwrite and the mappings of a file are one page cache on Linux, so the bytes are in what readers map when write returned; that
// precedes set_live in program order, and a reader looks at the word (acquire) before it reads. A reader of the new block that
// was resolved after the commit is a reader like any other.
#include "core/store/spill.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/memory/lease.hpp"
#include "core/memory/spill_file.hpp"
#include "core/memory/wake.hpp"
#include "core/memory/write_gate.hpp"
#include "core/pause.hpp"
#include "core/store/give_back.hpp"
#include "core/store/room.hpp"

namespace tq {

namespace {

constexpr std::uint64_t mib = 1u << 20;
// One transaction's worth: what holds the write lock for a few milliseconds at most, and what a process that dies has copied
// in vain.
constexpr std::uint64_t batch_bytes = 64 * mib;
constexpr std::size_t batch_blocks = 512;
constexpr std::size_t batch_stretches = 4096;
// Of one call, so that a put that waits for room hears of signals; whoever wants more calls again.
constexpr std::uint64_t call_bytes = 256 * mib;
// Who holds the lock moves the same blocks that we would: waiting is the better way, unless it was stopped.
constexpr double lock_timeout_s = 5.0;

using PlacedBlock = Index::PlacedBlock;
using RowStretch = Index::RowStretch;

struct Candidate {
  std::uint32_t last_use;
  PlacedBlock block;
};

std::vector<Candidate> unleased_blocks(Attachment& attachment, Index& index) {
  const std::vector<PlacedBlock> blocks = index.blocks_in_memory();
  std::vector<BlockRef> refs;
  refs.reserve(blocks.size());
  for (const PlacedBlock& block : blocks) refs.push_back(block.ref);
  // A hint here, without a fence: who leases one after this look keeps the old bytes until it lets go (give_back.hpp).
  std::unordered_set<std::uint64_t> unleased;
  for (const BlockRef ref : attachment.lease_directory.unleased(refs)) unleased.insert(ref.word);
  std::vector<Candidate> candidates;
  candidates.reserve(unleased.size());
  for (const PlacedBlock& block : blocks) {
    if (unleased.contains(block.ref.word)) candidates.push_back({attachment.table.last_use(block.ref), block});
  }
  return candidates;
}

// The coldest, of `nbytes` together.
std::vector<PlacedBlock> choose(std::vector<Candidate> candidates, std::uint64_t nbytes) {
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.last_use != b.last_use ? a.last_use < b.last_use : a.block.ref.word < b.block.ref.word;
  });
  std::vector<PlacedBlock> chosen;
  std::uint64_t sum = 0;
  for (auto at = candidates.begin(); at != candidates.end() && sum < nbytes; ++at) {
    chosen.push_back(at->block);
    sum += at->block.span.nbytes;
  }
  return chosen;
}

// Of all stretches of free space and candidates, `nbytes` long, the one whose youngest candidate was used longest ago (of equals
// the one with the fewest bytes to move); its candidates. None: leased blocks, pending or retired space stand in every one.
std::vector<PlacedBlock> choose_contiguous(const std::vector<Candidate>& candidates, const std::vector<Span>& free,
                                           std::uint64_t nbytes) {
  constexpr std::int64_t nothing = -1;  // to move: older than any use
  struct Part {
    Span span;
    std::int64_t last_use = nothing;
    const PlacedBlock* block = nullptr;
  };
  std::vector<Part> parts;
  parts.reserve(candidates.size() + free.size());
  for (const Span& span : free) parts.push_back({span});
  for (const Candidate& candidate : candidates) parts.push_back({candidate.block.span, candidate.last_use, &candidate.block});
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.span.offset < b.span.offset; });

  // What is large starts at a page (Index::reserve).
  const std::uint64_t unit = nbytes >= 65536 ? 4096 : 64;
  const auto up = [unit](std::uint64_t value) { return (value + unit - 1) / unit * unit; };
  const auto fits = [&](std::size_t first, std::uint64_t end) { return up(parts[first].span.offset) + up(nbytes) <= end; };
  using Cost = std::pair<std::int64_t, std::uint64_t>;  // use of the youngest, bytes to move
  const auto bytes_to_move = [&](std::size_t part) { return parts[part].block == nullptr ? 0 : parts[part].span.nbytes; };
  Cost best{std::int64_t{1} << 40, 0};
  std::uint64_t to_move = 0;  // in [first, at]
  std::size_t best_first = 0;
  std::size_t best_end = 0;
  std::size_t first = 0;
  std::deque<std::size_t> youngest;  // of [first, at]: descending by use, so that the front is the youngest
  for (std::size_t at = 0; at < parts.size(); ++at) {
    if (at > 0 && parts[at - 1].span.offset + parts[at - 1].span.nbytes != parts[at].span.offset) {
      first = at;
      youngest.clear();
      to_move = 0;
    }
    to_move += bytes_to_move(at);
    while (!youngest.empty() && parts[youngest.back()].last_use <= parts[at].last_use) youngest.pop_back();
    youngest.push_back(at);
    const std::uint64_t end = parts[at].span.offset + parts[at].span.nbytes;
    if (!fits(first, end)) continue;
    while (first < at && fits(first + 1, end)) to_move -= bytes_to_move(first++);
    while (youngest.front() < first) youngest.pop_front();
    const Cost cost{parts[youngest.front()].last_use, to_move};
    if (cost >= best) continue;
    best = cost;
    best_first = first;
    best_end = at + 1;
  }
  std::vector<PlacedBlock> chosen;
  for (std::size_t i = best_first; i < best_end; ++i) {
    if (parts[i].block != nullptr) chosen.push_back(*parts[i].block);
  }
  return chosen;
}

// Places in the spill file that are this process's until they are published.
class Places {
 public:
  Places(Attachment& attachment, Index& index) : attachment_(attachment), index_(index), owner_(attachment.leases->owner()) {}
  ~Places() {
    if (pending_.empty()) return;
    for (const Reservation& place : pending_) attachment_.table.set_free(place.block);
    try {
      index_.abandon_all(pending_, owner_);
    } catch (const Error&) {
      // The write gate is stuck: they stay pending under this process's lease file, and go to whoever reaps it.
    }
  }
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;

  // One a block, as far as there is room, for which the file grows. `full`: there was not enough.
  std::vector<std::optional<Reservation>> take(const std::vector<PlacedBlock>& blocks, bool& full) {
    std::vector<std::optional<Reservation>> places = reserve(blocks);
    std::uint64_t missing = 0;
    std::vector<PlacedBlock> without;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (places[i]) continue;
      without.push_back(blocks[i]);
      missing += blocks[i].span.nbytes;
    }
    // Once more also where the file cannot grow by all that is missing: what fits goes.
    if (!without.empty()) {
      grow_spill_file(attachment_, index_, missing);
      const auto more = reserve(without);
      for (std::size_t i = 0, next = 0; i < blocks.size(); ++i) {
        if (!places[i]) places[i] = more[next++];
      }
    }
    for (auto& place : places) {
      if (!place) full = true;
      if (!place) continue;
      attachment_.table.ensure(place->block);
      if (attachment_.payload->spill()->ensure_backed(place->span)) continue;
      drop(*place);
      place.reset();
      full = true;
    }
    return places;
  }

  void drop(const Reservation& place) {
    index_.abandon(place, owner_);
    attachment_.table.set_free(place.block);
    std::erase_if(pending_, [&](const Reservation& pending) { return pending.block == place.block; });
  }

  void published() { pending_.clear(); }
  OwnerId owner() const { return owner_; }

 private:
  std::vector<std::optional<Reservation>> reserve(const std::vector<PlacedBlock>& blocks) {
    std::vector<std::uint64_t> sizes;
    sizes.reserve(blocks.size());
    for (const PlacedBlock& block : blocks) sizes.push_back(block.span.nbytes);
    std::vector<std::optional<Reservation>> places = index_.reserve_spill(sizes, owner_);
    for (const auto& place : places) {
      if (place) pending_.push_back(*place);
    }
    return places;
  }

  Attachment& attachment_;
  Index& index_;
  const OwnerId owner_;
  std::vector<Reservation> pending_;
};

struct Moved {
  std::uint64_t freed_nbytes = 0;
  bool full = false;  // the disk
};

Moved move_batch(Attachment& attachment, Index& index, const std::vector<PlacedBlock>& blocks, const std::vector<RowStretch>& rows) {
  SpillFile& file = *attachment.payload->spill();
  Moved result;
  Places places(attachment, index);
  const std::vector<std::optional<Reservation>> taken = places.take(blocks, result.full);
  TQ_PAUSE("spill.before_copy");
  std::vector<Index::BlockMove> moves;
  std::vector<BlockLease> leases;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!taken[i]) continue;
    std::optional<std::vector<BlockLease>> lease = lease_blocks(attachment.table, attachment.leases, std::span(&blocks[i].ref, 1));
    if (!lease) {
      places.drop(*taken[i]);  // retired since it was chosen
      continue;
    }
    if (i == blocks.size() / 2) TQ_PAUSE("spill.midway");
    if (!file.write(taken[i]->span, attachment.payload->readable(blocks[i].span))) {
      for (std::size_t rest = i; rest < blocks.size(); ++rest) {
        if (taken[rest]) places.drop(*taken[rest]);
      }
      result.full = true;
      break;
    }
    moves.push_back({blocks[i].ref, *taken[i]});
    leases.push_back(std::move(lease->front()));
  }
  TQ_PAUSE("spill.after_copy");
  if (moves.empty()) return result;
  for (const Index::BlockMove& move : moves) attachment.table.set_live(move.to.block);
  index.publish_spilled(moves, rows, places.owner());
  places.published();  // at once: from here on the words are those of published blocks
  std::vector<BlockRef> retired;
  std::uint64_t nbytes = 0;
  for (const Index::BlockMove& move : moves) {
    if (move.moved) {
      retired.push_back(move.from);
      nbytes += move.to.span.nbytes;
    } else {
      attachment.table.set_free(move.to.block);
    }
  }
  TQ_PAUSE("spill.after_commit");
  leases.clear();
  attachment.control->counters().add(Counter::spilled_blocks, retired.size());
  attachment.control->counters().add(Counter::spilled_bytes, nbytes);
  try {
    result.freed_nbytes = retire_blocks(attachment, index, retired);
  } catch (const Error&) {
    // They stay listed, and the next reclaim frees them.
  }
  return result;
}

}  // namespace

bool grow_spill_file(Attachment& attachment, Index& index, std::uint64_t nbytes) {
  SpillFile& file = *attachment.payload->spill();
  const GrowthLock held(*attachment.control);
  const std::uint64_t backed = file.backed_bytes();
  // Another process, dead since, may have backed a step without telling the index.
  if (index.stats().spill_reserved_bytes < backed) index.grow_spill(backed);
  if (backed >= file.size_bytes()) return false;
  for (const std::uint64_t step : {std::max(attachment.control->step_bytes(), nbytes), nbytes}) {
    try {
      index.grow_spill(file.grow(backed + std::min(step, file.size_bytes() - backed)));
      return true;
    } catch (const Error& error) {
      if (error.code != ErrorCode::storage_full) throw;
    }
  }
  return false;
}

std::optional<Reservation> find_spill_room(Attachment& attachment, Index& index, std::uint64_t nbytes, OwnerId owner) {
  SpillFile* file = attachment.payload->spill();
  if (file == nullptr) return std::nullopt;
  std::optional<Reservation> place = index.reserve_spill({nbytes}, owner).front();
  if (!place && grow_spill_file(attachment, index, nbytes)) place = index.reserve_spill({nbytes}, owner).front();
  if (!place) return std::nullopt;
  try {
    attachment.table.ensure(place->block);
    if (file->ensure_backed(place->span)) return place;
  } catch (...) {
    index.abandon(*place, owner);
    throw;
  }
  index.abandon(*place, owner);
  return std::nullopt;
}

std::uint64_t spill_cold(Attachment& attachment, Index& index, std::uint64_t nbytes, bool contiguous) {
  SpillFile* file = attachment.payload->spill();
  if (file == nullptr) return 0;
  file->check_length();
  const SpillLock lock(*attachment.control, lock_timeout_s);
  const std::uint64_t floor = std::clamp<std::uint64_t>(attachment.payload->payload_bytes() / 64, 256u << 10, batch_bytes);
  const std::vector<Candidate> candidates = unleased_blocks(attachment, index);
  const std::vector<PlacedBlock> victims =
      contiguous ? choose_contiguous(candidates, index.free_in_memory(), nbytes)
                 : choose(candidates, std::min(std::max(nbytes, floor), std::max(call_bytes, floor)));
  if (victims.empty()) return 0;
  const std::vector<std::vector<RowStretch>> rows = index.rows_naming(victims);

  std::uint64_t freed = 0;
  for (std::size_t at = 0; at < victims.size();) {
    std::vector<PlacedBlock> blocks;
    std::vector<RowStretch> of_batch;
    std::uint64_t sum = 0;
    do {
      sum += victims[at].span.nbytes;
      blocks.push_back(victims[at]);
      of_batch.insert(of_batch.end(), rows[at].begin(), rows[at].end());
      ++at;
    } while (at < victims.size() && sum + victims[at].span.nbytes <= batch_bytes && blocks.size() < batch_blocks &&
             of_batch.size() + rows[at].size() <= batch_stretches);
    const Moved moved = move_batch(attachment, index, blocks, of_batch);
    freed += moved.freed_nbytes;
    if (moved.full) break;
  }
  return freed;
}

}  // namespace tq
