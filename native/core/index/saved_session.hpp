// All of a session but its payload, as plain tables: what `Index::save` lists at one snapshot and `Index::replace` puts in
// the place of whatever the session holds. Numbers of partitions, blocks and fields are positions in these tables; no
// number of the index itself is in here, so the tables mean the same to every session.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.hpp"

namespace tq {

// Strings one after another: the i-th ends at ends[i] and starts where the one before ends.
struct StringColumn {
  std::string bytes;
  std::vector<std::int64_t> ends;

  void add(std::string_view value) { ends.push_back(static_cast<std::int64_t>(bytes.append(value).size())); }
  std::size_t size() const { return ends.size(); }
  // Error(invalid) when the ends do not ascend within the bytes.
  std::string_view at(std::size_t i) const;
};

// A published block with those of its fields that some row still names, which lie as if they had been put without the others.
struct SavedBlock {
  std::int64_t partition = 0;
  std::int64_t n_rows = 0;
  std::uint64_t nbytes = 0;
  std::vector<FieldLayout> fields;
  std::optional<std::uint64_t> elsewhere_bytes;  // see BlockRecord in index/records.hpp: of what the runs name
};

// Rows [first, first + count) of a partition have the same cells: the next `n_cells` of `SavedSession::cells`. Every row that
// exists is in one run; runs ascend by partition and first row.
struct SavedRun {
  std::int64_t partition = 0;
  RowIndex first = 0;
  std::int64_t count = 0;
  std::int64_t n_cells = 0;
};

// Row first + i of the run has the next `n_fields` of `SavedSession::cell_fields` in row block_row + i of the block.
struct SavedCell {
  std::int64_t block = 0;
  std::int64_t block_row = 0;
  std::int64_t n_fields = 0;
};

// A row that has a key or tags; its strings stand at the same place of `keys` and `tags`. Ascending by partition and row.
struct SavedRow {
  std::int64_t partition = 0;
  RowIndex row = 0;
};

struct RowRange {
  RowIndex first = 0;
  std::int64_t count = 0;
};

// What a task consumed, and the state of its sampler.
struct SavedTask {
  std::int64_t partition = 0;
  std::string name;
  std::string sampler_state;
  std::vector<RowRange> consumed;  // ascending; rows that were cleared since are among them
};

struct SavedSession {
  // The session gives out [next_row / 2^50 * 2^50, + 2^49) and has given out what lies below next_row. Rows outside of that range
  // may be anywhere: they came from other nodes.
  RowIndex next_row = 0;
  std::vector<std::string> partitions;
  std::vector<std::vector<std::string>> known_fields;  // of each partition: every field that any row of it ever had
  std::vector<SavedBlock> blocks;
  std::vector<SavedRun> runs;
  std::vector<SavedCell> cells;
  std::vector<std::int64_t> cell_fields;  // positions in the fields of the cell's block
  std::vector<SavedRow> rows;
  StringColumn keys;
  StringColumn tags;
  std::vector<SavedTask> tasks;
};

}  // namespace tq
