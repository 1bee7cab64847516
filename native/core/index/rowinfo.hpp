// Keys and tags of rows, in chunks of consecutive rows. Rows that have neither cost nothing.
//
// Record, under (partition, first row): u32 count | count x { u32 key_end, u32 tags_end } | bytes. Row i's key ends at
// key_end and starts where row i - 1's tags end; its tags follow it. No key and no tags are empty strings (a key is never
// empty). A chunk ends at 256 rows, or earlier so that four of them fit in a page: a value of more than half a page costs
// LMDB whole pages that must lie together, also when one row's tag changes, and when records come in order LMDB's split
// leaves one place of each page empty, which of two would be half.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/index/txn.hpp"
#include "core/types.hpp"

namespace tq::index {

inline constexpr std::int64_t max_chunk_rows = 256;
inline constexpr std::size_t max_chunk_nbytes = 990;  // a quarter of a page less the headers

// Walks the chunks of a partition. `seek` is cheap within a chunk and to the next one.
class RowInfoReader {
 public:
  RowInfoReader(const Txn& txn, PartitionId partition) : cursor_(txn, Table::rowinfo), partition_(partition) {}
  // Whether a chunk covers the row; else key() and tags() are empty.
  bool seek(RowIndex row);
  // Stands on the first row at or after `row` that has a key or tags; nullopt: there is none.
  std::optional<RowIndex> next_named(RowIndex row);
  std::string_view key() const { return key_; }
  std::string_view tags() const { return tags_; }

 private:
  friend class RowInfoWriter;
  bool accept(bool found);
  bool covers(RowIndex row) const { return valid_ && row >= start_ && row < start_ + count_; }
  void stand_on(std::int64_t i);

  Cursor cursor_;
  PartitionId partition_;
  bool valid_ = false;
  RowIndex start_ = 0;
  std::int64_t count_ = 0;
  std::string_view ends_;
  std::string_view bytes_;
  std::string_view key_;
  std::string_view tags_;
};

// What a transaction does to one row: a key set ("" leaves it), a tag map merged in ("" changes nothing), or both removed.
struct RowUpdate {
  RowIndex row = 0;
  std::string_view key;
  std::string_view tags;
  bool remove = false;
};

// A key that went with its row.
struct RemovedKey {
  RowIndex row;
  std::string key;
};

class RowInfoWriter {
 public:
  RowInfoWriter(WriteTxn& txn, PartitionId partition) : txn_(txn), partition_(partition) {}
  // `updates` ascend by row, each row once. Every chunk is read once and written once.
  void apply(const std::vector<RowUpdate>& updates);
  std::vector<RemovedKey> removed_keys;

 private:
  void add(RowIndex row, std::string_view key, std::string_view tags);
  void finish_chunk();
  // Writes the finished chunks; `replaced` (if not -1) is the start of the chunk that they stand for.
  void write(RowIndex replaced);

  struct Chunk {
    RowIndex start;
    std::string value;
  };
  WriteTxn& txn_;
  PartitionId partition_;
  RowIndex start_ = 0;
  std::vector<std::uint32_t> ends_;
  std::string bytes_;
  std::vector<Chunk> finished_;
};

}  // namespace tq::index
