// Runs: stretches of consecutive rows of a partition that have exactly the same cells, block after block. A put of n
// fresh rows with any number of fields is one run; overwriting part of the rows or fields splits runs. A row exists
// exactly if a run covers it; a bare row is covered by a run without cells.
//
// Record: u32 count | u16 n | n x { u64 ref | u32 block_row | u16 n_fields | n_fields x u32 field }
// Row start + i has the fields of an entry in row block_row + i of that entry's block. A field stands in one entry only;
// entries ascend by ref, fields within one ascend by id.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/index/space.hpp"
#include "core/index/txn.hpp"
#include "core/types.hpp"

namespace tq::index {

inline constexpr std::size_t max_block_fields = 4096;

// A run as it lies in a page: valid as long as the transaction's values are.
struct RunView {
  RowIndex start = 0;
  std::int64_t count = 0;
  std::uint16_t n_entries = 0;
  std::string_view entries;

  RowIndex end() const { return start + count; }
  // `per_entry(ref, block_row, n_fields, fields)`: fields are n_fields x u32, unaligned.
  template <class PerEntry>
  void for_each(PerEntry&& per_entry) const {
    Reader in(entries);
    for (unsigned i = 0; i < n_entries; ++i) {
      const BlockRef ref{in.number<std::uint64_t>()};
      const auto block_row = in.number<std::uint32_t>();
      const auto n_fields = in.number<std::uint16_t>();
      per_entry(ref, block_row, n_fields, in.bytes(std::uint64_t{n_fields} * 4).data());
    }
    in.expect_end();
  }
};
inline FieldId field_at(const char* fields, std::size_t i) { return load<std::uint32_t>(fields + 4 * i); }

class RunCursor {
 public:
  RunCursor(const Txn& txn, PartitionId partition) : txn_(txn), cursor_(txn, Table::runs), partition_(partition) {}
  // Stands on the run that covers `row`, else on the first one after it; false: neither exists. Cheap when the answer is
  // the current run or the next one.
  bool seek(RowIndex row);
  bool first();
  bool next();
  bool valid() const { return valid_; }
  const RunView& run() const { return run_; }
  void erase() { cursor_.erase(); }

 private:
  bool accept(bool found);
  bool accept_listed(RowIndex from, bool found);

  const Txn& txn_;
  Cursor cursor_;
  PartitionId partition_;
  RowIndex limit_ = row_limit;  // of the rows that a walk from the first run on may meet
  std::int64_t left_ = 0;       // and how many of them
  bool listing_ = false;
  bool valid_ = false;
  RunView run_;
};

// Rows [row, row + count) of a call, which are rows [block_row, block_row + count) of its block; `tag` is the caller's.
struct Segment {
  RowIndex row = 0;
  std::int64_t count = 0;
  std::int64_t block_row = 0;
  std::int64_t tag = 0;
};

// The rows of a call as segments, ascending by row: maximal stretches where both row and position ascend by one. A row
// that stands twice is Error(invalid), or with `drop_repeats` kept at one of its positions. Rows that cannot exist are
// left out: the caller has refused them before, or does not mind.
std::vector<Segment> make_segments(std::span<const RowIndex> rows, bool drop_repeats);

// What a segment does to the part [run.start + offset, + count) of a run that it meets, whose first row is its own row
// `segment_offset`: the fields that the new block takes over (ascending, valid until the next call; may be none), or
// nullptr to remove the rows.
using Transform = std::function<const std::vector<FieldId>*(const RunView& run, std::int64_t offset, const Segment& segment,
                                                            std::int64_t segment_offset)>;

struct RewriteResult {
  std::int64_t rows_missing = 0;  // rows of the segments that no run covers
  std::uint64_t cells_taken = 0;  // cells that now name `block`
};
// Applies segments (ascending) to the runs that they meet: each run is read once, and written once after all were read.
// Neighbouring results that continue one another are joined, so that re-puts do not fragment a partition for ever.
class RunRewriter {
 public:
  RunRewriter(WriteTxn& txn, PartitionId partition, LiveCells& live) : txn_(txn), partition_(partition), live_(live) {}
  // Reads and computes; the new runs are held in memory.
  RewriteResult plan(std::span<const Segment> segments, BlockRef block, const Transform& transform);
  // Writes what `plan` computed.
  void apply();

 private:
  struct Entry {
    std::uint64_t ref;
    std::uint32_t block_row;
    std::uint32_t fields_at;
    std::uint32_t n_fields;
  };
  struct Planned {
    RowIndex start;
    std::int64_t count;
    std::size_t entries_at;
    std::size_t n_entries;
  };
  void copy_part(const RunView& run, std::int64_t offset, std::int64_t count);
  void change_part(const RunView& run, std::int64_t offset, std::int64_t count, const std::vector<FieldId>& fields,
                   BlockRef block, std::int64_t block_row);
  void remove_part(const RunView& run, std::int64_t count);
  void begin_run(RowIndex start, std::int64_t count) { runs_.push_back({start, count, entries_.size(), 0}); }
  void add_entry(std::uint64_t ref, std::uint32_t block_row, std::span<const FieldId> fields);
  void end_run();
  bool continues(const Planned& before, const Planned& after) const;
  std::string_view encode(const Planned& run);

  WriteTxn& txn_;
  PartitionId partition_;
  LiveCells& live_;
  std::vector<RowIndex> old_starts_;
  std::vector<Planned> runs_;
  std::vector<Entry> entries_;
  std::vector<FieldId> fields_;
  std::vector<FieldId> kept_;
  Writer out_;
};

// A run of rows that no run covers yet.
void add_fresh_run(WriteTxn& txn, PartitionId partition, RowIndex start, std::int64_t count, BlockRef block,
                   std::int64_t block_row, std::span<const FieldId> fields);

}  // namespace tq::index
