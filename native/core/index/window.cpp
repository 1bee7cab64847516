// Free memory in many pieces, joined: the stretch of the payload that costs least to empty, and the free pieces inside it,
// reserved so that nothing is put there meanwhile; or the stretch whose blocks, moved together, leave the rest of it free.
#include <algorithm>
#include <limits>
#include <unordered_set>

#include "core/index/impl.hpp"

namespace tq {
namespace {

using namespace index;

constexpr std::size_t max_held = 512;  // of one transaction

struct Tile {
  Span span;
  std::uint64_t moved = 0;  // bytes that have to leave, and find room elsewhere; 0: free
  bool fixed = false;       // pending, retired, or read by somebody

  bool free() const { return moved == 0 && !fixed; }
  std::uint64_t end() const { return span.offset + span.nbytes; }
};

// All that is backed, by offset; together they cover it.
std::vector<Tile> tiles(const Txn& txn, const std::vector<BlockRef>& leased) {
  std::vector<Tile> all;
  std::unordered_set<std::uint64_t> readers;
  for (const BlockRef block : leased) readers.insert(block.word);
  const auto counters_value = txn.get(Key(Table::counters));
  if (!counters_value) corrupt("the counters are missing");
  const Counters counters = Counters::parse(*counters_value);
  const auto add = [&](Tile tile) {
    if (!tile.span.spilled() && !in_headroom(counters, tile.span)) all.push_back(tile);
  };
  {
    Cursor cursor(txn, Table::extents_by_offset);
    for (bool found = cursor.seek(Key(Table::extents_by_offset)); found; found = cursor.next()) {
      add({{key_u64(cursor.tail(), 0), Reader(cursor.value()).number<std::uint64_t>()}, 0, false});
    }
  }
  {
    Cursor cursor(txn, Table::pending);
    for (bool found = cursor.seek(Key(Table::pending)); found; found = cursor.next()) {
      add({{key_u64(cursor.tail(), 8), Reader(cursor.value()).number<std::uint64_t>()}, 0, true});
    }
  }
  {
    Cursor cursor(txn, Table::retired);
    for (bool found = cursor.seek(Key(Table::retired)); found; found = cursor.next()) {
      add({RetiredRecord::parse(cursor.value()).span, 0, true});
    }
  }
  {
    Cursor cursor(txn, Table::blocks);
    for (bool found = cursor.seek(Key(Table::blocks)); found; found = cursor.next()) {
      const BlockRecord record = BlockRecord::parse(cursor.value());
      add({record.span, span_nbytes(record.live_bytes()), readers.contains(key_u64(cursor.tail(), 0))});
    }
  }
  std::sort(all.begin(), all.end(), [](const Tile& a, const Tile& b) { return a.span.offset < b.span.offset; });
  return all;
}

}  // namespace

std::optional<Span> Index::cheapest_window(std::uint64_t nbytes, const std::vector<BlockRef>& leased) {
  const ReadTxn txn(*impl_->env);
  const std::vector<Tile> all = tiles(txn, leased);
  std::uint64_t free = 0;
  for (const Tile& tile : all) free += tile.free() ? tile.span.nbytes : 0;
  const std::uint64_t unit = span_unit(nbytes);
  nbytes = span_nbytes(nbytes);
  std::optional<Span> best;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t moved = 0;
  std::uint64_t free_inside = 0;
  std::size_t fixed = 0;
  std::size_t end = 0;
  const auto count = [&](const Tile& tile, int sign) {
    const auto change = [sign](std::uint64_t& sum, std::uint64_t by) { sum = sign > 0 ? sum + by : sum - by; };
    change(moved, tile.moved);
    if (tile.free()) change(free_inside, tile.span.nbytes);
    fixed = sign > 0 ? fixed + tile.fixed : fixed - tile.fixed;
  };
  // For each first tile, the fewest that hold such a span: its start only grows with the tile, and so does its end.
  for (std::size_t begin = 0; begin < all.size(); ++begin) {
    const Tile& first = all[begin];
    const std::uint64_t start = span_begin(first.span.offset, nbytes);
    for (; end < all.size() && (end == begin || all[end - 1].end() < start + nbytes); ++end) count(all[end], 1);
    const Tile& last = all[end - 1];
    if (last.end() < start + nbytes) break;
    if (fixed == 0 && moved < least) {
      // Blocks leave whole; of a free tile at either end the window has what it needs, and the rest is room to move to.
      Span window{first.free() ? start : first.span.offset, 0};
      if (first.free() && !last.free()) window.offset = (last.end() - nbytes) / unit * unit;
      window.nbytes = (last.free() ? start + nbytes : last.end()) - window.offset;
      const std::uint64_t outside =
          free - free_inside + (window.offset - first.span.offset) + (last.end() - window.offset - window.nbytes);
      if (moved <= outside) {
        least = moved;
        best = window;
      }
    }
    count(first, -1);
  }
  return best;
}

std::optional<Span> Index::cheapest_run(std::uint64_t nbytes, std::uint64_t most_moved, const std::vector<BlockRef>& leased) {
  const ReadTxn txn(*impl_->env);
  const std::vector<Tile> all = tiles(txn, leased);
  std::optional<Span> best;
  std::uint64_t least = most_moved;
  std::uint64_t moved = 0;
  std::uint64_t free = 0;
  std::size_t begin = 0;
  for (std::size_t end = 0; end < all.size(); ++end) {
    if (all[end].fixed) {
      begin = end + 1;
      moved = free = 0;
      continue;
    }
    moved += all[end].moved;
    if (all[end].free()) free += all[end].span.nbytes;
    // The shortest that ends here: it begins with a free piece that it cannot do without.
    for (; begin < end && (!all[begin].free() || free - all[begin].span.nbytes >= nbytes); ++begin) {
      moved -= all[begin].moved;
      if (all[begin].free()) free -= all[begin].span.nbytes;
    }
    if (free >= nbytes && moved <= least) {
      if (!best || moved < least) best = Span{all[begin].span.offset, all[end].end() - all[begin].span.offset};
      least = moved;
    }
  }
  return best;
}

std::vector<Reservation> Index::reserve_within(Span window, OwnerId owner) {
  return impl_->write(Room::put, [&](WriteTxn& txn) {
    const std::uint64_t end = window.offset + window.nbytes;
    std::vector<Span> parts;
    {
      Cursor cursor(txn, Table::extents_by_offset);
      bool found = cursor.last_before(Key(Table::extents_by_offset).u64(window.offset + 1));
      if (!found) found = cursor.seek(Key(Table::extents_by_offset).u64(window.offset));
      for (; found && parts.size() < max_held; found = cursor.next()) {
        const std::uint64_t offset = key_u64(cursor.tail(), 0);
        if (offset >= end) break;
        const std::uint64_t free_end = offset + Reader(cursor.value()).number<std::uint64_t>();
        const std::uint64_t first = std::max(offset, window.offset);
        const std::uint64_t last = std::min(free_end, end);
        if (first < last) parts.push_back({first, last - first});
      }
    }
    std::vector<Reservation> held;
    for (const Span part : parts) {
      take_span(txn, part);
      const Reservation reservation{part, BlockRef::make(txn.counters.next_generation++, take_slot(txn, impl_->format.max_slots))};
      add_pending(txn, owner, reservation);
      held.push_back(reservation);
    }
    return held;
  });
}

}  // namespace tq
