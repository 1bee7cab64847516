// Who has which bytes of the payload segment and of the spill file: free extents, pending reservations, published blocks,
// retired blocks. Everything here runs inside the caller's write transaction; at every commit
//   free + pending + ahead + used (published) + retired = reserved,   byte for byte, in each of the two regions
// (in memory: = reserved + headroom taken).
// A span's offset says which region it is of (types.hpp); free spans have tables of their own a region, all else is shared.
//
// The headroom is room behind the payload that no put gets: a store that is full to its last byte can still move the few living
// rows of its sparse blocks. It is handed out from front to back, and anew once all of it came back; what moved there
// moves on as soon as there is other room.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/index/index.hpp"
#include "core/index/txn.hpp"

namespace tq::index {

// Spans from this size on start at a page and are whole pages, so that they can be mapped; smaller ones share pages.
inline constexpr std::uint64_t page_aligned_from = 64u << 10;
inline constexpr std::uint64_t page_nbytes = 4096;
inline constexpr std::uint64_t small_nbytes = 64;

enum class Region { memory, spill };

// Of what a block of so many bytes begins and ends at a multiple.
constexpr std::uint64_t span_unit(std::uint64_t nbytes) { return nbytes >= page_aligned_from ? page_nbytes : small_nbytes; }
// What it takes.
std::uint64_t span_nbytes(std::uint64_t nbytes);
// Where it can begin, at `offset` or behind.
constexpr std::uint64_t span_begin(std::uint64_t offset, std::uint64_t nbytes) {
  const std::uint64_t unit = span_unit(nbytes);
  return (offset + unit - 1) / unit * unit;
}

// At the first of the `preferred` offsets where it is free, else best fit, lowest offset among equals. nullopt: no free extent
// holds it.
std::optional<Span> take_extent(WriteTxn& txn, std::uint64_t nbytes, std::span<const std::uint64_t> preferred = {},
                                Region region = Region::memory);
// Of memory, at `span_begin` of the offset; nullopt where that is not free.
std::optional<Span> take_extent_from(WriteTxn& txn, std::uint64_t offset, std::uint64_t nbytes);
// Exactly these bytes of memory, which lie in one free extent.
void take_span(WriteTxn& txn, Span span);
// The front of what is left of the headroom; nullopt when that is less.
std::optional<Span> take_headroom(WriteTxn& txn, std::uint64_t nbytes);
inline bool in_headroom(const Counters& counters, Span span) {
  return span.offset >= counters.headroom_begin && span.offset - counters.headroom_begin < counters.headroom_bytes;
}
// Joined with free neighbours. Overlap with a free extent is Error(corrupt): somebody freed a span twice.
void give_extent(WriteTxn& txn, Span span);

// A slot of the block table; Error(index_full) when all `max_slots` are taken.
std::uint32_t take_slot(WriteTxn& txn, std::uint32_t max_slots);
void give_slot(WriteTxn& txn, std::uint32_t slot);

// `ahead`: for a put that is yet to come; counted apart.
void add_pending(WriteTxn& txn, OwnerId owner, const Reservation& reservation, bool ahead = false);
// Takes the reservation off the pending list; false when it is not listed (given back or reclaimed before).
bool take_pending(WriteTxn& txn, OwnerId owner, const Reservation& reservation);
std::vector<Reservation> pending_of(const Txn& txn, OwnerId owner);
// Extent and slot of a reservation that is no longer pending go back.
void give_back(WriteTxn& txn, const Reservation& reservation);

// Live cells of blocks change by what a transaction does to runs; collected here and applied once per block.
class LiveCells {
 public:
  void remove(BlockRef block, std::uint64_t cells) { removed_.emplace_back(block.word, cells); }
  // What went with the cells.
  struct Removed {
    std::vector<BlockRef> retired;
    std::uint64_t held_bytes = 0;
    bool elsewhere = false;  // some of these are of payload on other nodes
  };
  // Updates the blocks, all of `partition`; those without a live cell are retired. The number of blocks touched is `size()` at
  // most.
  Removed apply(WriteTxn& txn, std::string_view partition);
  std::size_t size() const { return removed_.size(); }

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> removed_;
};

// Publishes a block of `partition`, all of whose cells in `live_cells` are named by runs of this transaction. None: it is
// retired at once.
void add_block(WriteTxn& txn, BlockRef ref, const BlockRecord& record, std::string_view layouts, std::string_view partition);

// The block `from` gets the ref and the place of `to`; its record is otherwise the same and `from` is retired. False, and nothing
// changes: it is not published (any more).
bool move_block(WriteTxn& txn, BlockRef from, const Reservation& to);

// Where a block lies, published or retired; an empty span when it is neither.
Span block_span(const Txn& txn, BlockRef ref);

// What is on record about a block, for reports; see Index::describe_blocks.
Index::BlockFacts block_facts(const Txn& txn, BlockRef ref);

std::vector<BlockRef> list_retired(const Txn& txn);
// Frees extent and slot of a retired block; 0 when it is not listed, else its bytes.
std::uint64_t free_retired_block(WriteTxn& txn, BlockRef ref);

}  // namespace tq::index
