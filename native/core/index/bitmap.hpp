// Bitmaps over rows, one record per 4,096 of them: consumption marks and tombstones.
//
// Record: u16 first byte | bytes, without the zero bytes at both ends: a single row costs 3 bytes, a full chunk 514.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <numeric>
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

  static RowBitmap parse(std::string_view value) {
    Reader in(value);
    const std::size_t first = in.number<std::uint16_t>();
    if (first + in.left() > nbytes) corrupt("a bitmap of more rows than a chunk");
    RowBitmap bitmap;
    const std::string_view bytes = in.bytes(in.left());
    std::copy(bytes.begin(), bytes.end(), bitmap.bytes_.begin() + static_cast<std::ptrdiff_t>(first));
    return bitmap;
  }
  // "" when no row is set.
  std::string encode() const {
    std::size_t first = 0;
    std::size_t end = nbytes;
    while (first < end && bytes_[first] == 0) ++first;
    while (end > first && bytes_[end - 1] == 0) --end;
    if (first == end) return {};
    Writer out;
    return std::string(out.number(static_cast<std::uint16_t>(first)).bytes({bytes_.data() + first, end - first}).view());
  }

  // Rows set in an encoded bitmap.
  static std::int64_t count(std::string_view value) {
    Reader in(value);
    in.number<std::uint16_t>();
    const std::string_view bytes = in.bytes(in.left());
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}, [](std::int64_t sum, char byte) {
      return sum + std::popcount(static_cast<unsigned char>(byte));
    });
  }

  bool test(RowIndex row) const { return (bytes_[byte_of(row)] >> (row % 8) & 1) != 0; }
  // Returns whether the row was not set before.
  bool set(RowIndex row) {
    char& byte = bytes_[byte_of(row)];
    const auto bit = static_cast<char>(1 << (row % 8));
    const bool fresh = (byte & bit) == 0;
    byte = static_cast<char>(byte | bit);
    return fresh;
  }
  void reset(RowIndex row) {
    char& byte = bytes_[byte_of(row)];
    byte = static_cast<char>(byte & ~(1 << (row % 8)));
  }

 private:
  static constexpr std::size_t nbytes = n_rows / 8;
  static std::size_t byte_of(RowIndex row) { return static_cast<std::size_t>(row % n_rows / 8); }

  std::array<char, nbytes> bytes_{};
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

// Applies `change(bitmap, row)` to every row of the segments, each bitmap read and written once; returns how often it said
// true. Bitmaps without a row are removed.
std::int64_t change_bitmaps(WriteTxn& txn, const BitmapPlace& place, std::span<const Segment> segments,
                            const std::function<bool(RowBitmap&, RowIndex)>& change);

}  // namespace tq::index
