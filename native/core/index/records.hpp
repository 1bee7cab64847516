// The fixed records of the index and their bytes. Layouts, runs and rowinfo chunks have files of their own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/index/bytes.hpp"
#include "core/types.hpp"

namespace tq::index {

inline constexpr std::int64_t max_run_rows = std::int64_t{1} << 31;
// No index comes near it, and sums of such a one and a count do not overflow.
inline constexpr RowIndex row_limit = RowIndex{1} << 62;
inline bool may_exist(RowIndex row) { return row >= 0 && row < row_limit; }

// The nodes of a cluster number their rows apart: the one of ordinal k gives out [k << 50, + rows_given_out). The upper half of a
// node's range is for names that are not given out here: `publish` makes rows of them where it is told to.
inline constexpr RowIndex rows_of_a_node = RowIndex{1} << 50;
inline constexpr RowIndex rows_given_out = RowIndex{1} << 49;

// [first, end)
struct RowSpan {
  RowIndex first = row_limit;
  RowIndex end = row_limit;
  bool contains(RowIndex row) const { return row >= first && row < end; }
  RowIndex count() const { return end - first; }
};
// The indexes that a session gives out which has given out `next_row` last, or none yet.
inline RowSpan own_rows(RowIndex next_row) {
  const RowIndex first = next_row / rows_of_a_node * rows_of_a_node;
  return {first, first + rows_given_out};
}
// Names of fields live as long as the session. Look-up tables by id are no larger than this, whatever a record says.
inline constexpr FieldId max_field_id = 1u << 24;
// Names of fields live as long as the session: a program that makes new ones at each step would fill the index for good.
inline constexpr FieldId max_fields = 1u << 16;

// Of one block. Larger than any store; and nothing that is told of other nodes overflows the sum of a few blocks.
inline constexpr std::uint64_t max_elsewhere_bytes = std::uint64_t{1} << 56;

inline constexpr std::uint64_t format_magic = 0x31584449'51545354;  // "TSTQIDX1"
inline constexpr std::uint32_t format_version = 12;

// Written once by `create`, checked by whoever opens.
struct Format {
  std::uint64_t payload_bytes = 0;
  std::uint64_t spill_bytes = 0;    // size of the spill file; 0: the session has none
  std::uint32_t max_slots = 0;      // words of the block table
  std::uint64_t hash_seed[2] = {};  // of the key hash: random per session, so that keys cannot be made to collide

  static Format parse(std::string_view bytes);  // Error(layout_mismatch) when it is another version's
  std::string encode() const;
};

// Who has the bytes of one region, memory or spill file: free + pending (+ ahead, in memory) + used + retired = reserved.
struct RegionBytes {
  std::uint64_t reserved_bytes = 0;  // the end of the part that is backed, counted from the region's beginning
  std::uint64_t used_bytes = 0;      // spans of published blocks
  std::uint64_t live_bytes = 0;      // of them, the share of cells that rows still name
  std::uint64_t pending_bytes = 0;
  std::uint64_t retired_bytes = 0;
  std::uint64_t free_bytes = 0;
  friend bool operator==(const RegionBytes&, const RegionBytes&) = default;
};

// One value, rewritten by almost every transaction. The struct's bytes are the record. What it inherits is of memory.
struct Counters : RegionBytes {
  std::int64_t next_row = 0;
  std::uint64_t next_generation = 1;
  std::uint64_t next_partition = 1;
  std::uint64_t next_field = 1;
  std::uint64_t next_task = 1;
  std::uint64_t next_slot = 0;
  std::uint64_t puts = 0;
  std::int64_t rows = 0;
  std::uint64_t partitions = 0;
  std::uint64_t ahead_bytes = 0;  // pending, but for small puts to come: not in pending_bytes
  std::uint64_t next_claim = 1;   // the fencing number of the next claim
  RegionBytes spill;
  std::uint64_t free_extents = 0;
  // Room behind the payload that only compaction takes (space.hpp). [begin, begin + bytes) does not change.
  std::uint64_t headroom_begin = 0;
  std::uint64_t headroom_bytes = 0;
  std::uint64_t headroom_taken = 0;  // of it, pending, published or retired: counted there, too
  std::uint64_t headroom_end = 0;    // of it, handed out since it was last empty
  std::int64_t first_row = 0;        // where next_row began; does not change
  std::int64_t other_rows = 0;       // rows that were made under indexes which the caller, or a checkpoint, named
  std::int64_t other_end = 0;        // behind the highest of them
  std::uint64_t next_request = 0;    // see requests.hpp

  // No row from it on was ever made, and no more rows than that.
  RowIndex row_end() const { return std::max(next_row, other_end); }
  std::int64_t rows_made() const { return next_row - first_row + other_rows; }

  RegionBytes& region(const Span& span) { return span.spilled() ? spill : *this; }
  static Counters parse(std::string_view bytes);
  std::string_view view() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }
  friend bool operator==(const Counters&, const Counters&) = default;
};
static_assert(std::is_trivially_copyable_v<Counters> && std::has_unique_object_representations_v<Counters>);
static_assert(sizeof(Counters) == 32 * 8);

struct PartitionRecord {
  std::uint64_t version = 0;
  std::int64_t rows = 0;         // without the doomed ones
  std::int64_t keyed_rows = 0;   // doomed ones count until their records are removed
  std::uint64_t live_bytes = 0;  // what its cells hold of its blocks: the sum of their held_bytes()
  std::int64_t doomed_rows = 0;  // cleared, their records not yet removed: see tombstones.hpp
  bool limited = false;          // it has limits: see flow_account.hpp
  std::string name;

  static PartitionRecord parse(std::string_view bytes);
  std::string encode() const;
};

// The head of a block's record; the layouts of its fields follow (layout.hpp). A block belongs to one partition.
//   u64 offset, nbytes, rows, cells, live cells | u32 partition | u32 whether there are elsewhere_bytes | [u64 them]
struct BlockRecord {
  Span span;
  std::uint64_t n_rows = 0;
  std::uint64_t cells = 0;       // as published
  std::uint64_t live_cells = 0;  // of them, named by a run; the block is retired when none is
  PartitionId partition = 0;
  // Of a block that is not the payload of its rows but says where it lies, on other nodes: the size of what the live cells
  // stand for there. With the cells, not as published: a move gives its block what it takes from others, to the byte.
  std::optional<std::uint64_t> elsewhere_bytes;

  static BlockRecord parse(std::string_view bytes);  // the head; the rest is `layout_bytes`
  static std::string_view layout_bytes(std::string_view bytes);
  static std::uint32_t n_fields(std::string_view layout_bytes);
  void encode_to(Writer& writer) const;
  // The bytes of the span that live cells stand for. Sums of it stay exact: every change adds the difference of two.
  std::uint64_t live_bytes() const;
  // What they count for in their partition, and for its limits.
  std::uint64_t held_bytes() const { return elsewhere_bytes.value_or(live_bytes()); }
  // So many of the live cells go; not more than there are.
  void remove_cells(std::uint64_t cells);
};

// What is left of a block that no cell names. All but the span is for people who ask what a lease still holds: its partition
// may be gone by then.
struct RetiredRecord {
  Span span;
  std::uint64_t n_rows = 0;
  std::uint32_t n_fields = 0;
  std::string partition;

  static RetiredRecord parse(std::string_view bytes);
  std::string encode() const;
};

struct TaskRecord {
  std::uint64_t id = 0;  // numbers the task's bitmaps
  std::uint64_t version = 0;
  std::string sampler_state;

  static TaskRecord parse(std::string_view bytes);
  std::string encode() const;
};

}  // namespace tq::index
