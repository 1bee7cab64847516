// Bitmaps over rows, one record per 4,096 of them: consumption marks and tombstones.
//
// Record, whichever of the two is shorter:
//   u16 first byte | bytes, without the zero bytes at both ends   a single row: 3 bytes
//   u16 0x8000 | (varint rows not set | varint rows set) ...      a full chunk: 5 bytes
// Marks outlive their rows (a row that is made again is the sample that it was), so a run of weeks keeps one of nearly every
// row it ever had; nearly all of them lie in such stretches.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/index/bytes.hpp"
#include "core/index/runs.hpp"
#include "core/index/txn.hpp"
#include "core/types.hpp"

namespace tq::index {

class RowBitmap {
 public:
  static constexpr std::int64_t n_rows = 4096;
  static std::uint64_t chunk_of(RowIndex row) { return static_cast<std::uint64_t>(row) / n_rows; }
  static RowIndex first_row(std::uint64_t chunk) {
    if (chunk >= static_cast<std::uint64_t>(row_limit / n_rows)) corrupt("a bitmap of rows that cannot exist");
    return static_cast<RowIndex>(chunk) * n_rows;
  }

  static RowBitmap parse(std::string_view value);
  std::string encode() const;  // "" when no row is set

  bool test(RowIndex row) const { return (word_of(row) >> (row % 64) & 1) != 0; }
  // Both of `count` rows of one chunk.
  void set_all(RowIndex first, std::int64_t count);
  std::int64_t reset_all(RowIndex first, std::int64_t count);  // returns how many were set
  std::int64_t count() const;

 private:
  static constexpr std::size_t n_words = n_rows / 64;
  static std::size_t at(RowIndex row) { return static_cast<std::size_t>(row % n_rows / 64); }
  std::uint64_t word_of(RowIndex row) const { return words_[at(row)]; }
  // From `row` (within the chunk) on: how many rows are alike, set or not.
  std::int64_t alike(std::int64_t row, bool are_set) const;
  std::string as_stretches() const;

  std::array<std::uint64_t, n_words> words_{};
};

// Where the bitmaps of one set of rows lie: (partition, chunk), or (partition, task, chunk).
struct BitmapPlace {
  Table table;
  PartitionId partition;
  std::optional<std::uint64_t> task;

  Key key(std::uint64_t chunk) const {
    Key key(table);
    key.u32(partition);
    if (task) key.u64(*task);
    return key.u64(chunk);
  }
};

// Reads one set; neighbouring rows cost one look-up a chunk.
class BitmapReader {
 public:
  BitmapReader(const Txn& txn, BitmapPlace place) : txn_(txn), place_(place) {}
  bool test(RowIndex row);

 private:
  const Txn& txn_;
  BitmapPlace place_;
  std::optional<std::uint64_t> chunk_;
  RowBitmap bitmap_;
};

// Every row of the segments. Of ascending segments each bitmap is read and written once; bitmaps without a row are removed.
void set_rows(WriteTxn& txn, const BitmapPlace& place, std::span<const Segment> segments);
std::int64_t reset_rows(WriteTxn& txn, const BitmapPlace& place, std::span<const Segment> segments);  // returns how many were set

}  // namespace tq::index
