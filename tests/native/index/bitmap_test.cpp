// Bitmaps over rows: what is written is read again, in few bytes.
#include <random>
#include <string>
#include <vector>

#include "core/index/bitmap.hpp"
#include "index/support.hpp"

namespace {

using tq::index::RowBitmap;

constexpr std::int64_t n_rows = RowBitmap::n_rows;

// Sets by turns of random length, so that every word boundary is met: set to `share` of the time.
std::vector<bool> random_rows(std::mt19937& random, int longest) {
  std::vector<bool> rows(static_cast<std::size_t>(n_rows));
  bool is_set = random() % 2 == 0;
  for (std::size_t row = 0; row < rows.size(); is_set = !is_set) {
    const std::size_t n = 1 + random() % static_cast<unsigned>(longest);
    for (std::size_t end = std::min(rows.size(), row + n); row < end; ++row) rows[row] = is_set;
  }
  return rows;
}

TEST_CASE("what a bitmap encodes it parses, however its rows lie") {
  std::mt19937 random(5);
  for (const int longest : {1, 2, 7, 64, 300, 5000}) {
    for (int round = 0; round < 50; ++round) {
      const std::vector<bool> rows = random_rows(random, longest);
      RowBitmap one_by_one;
      RowBitmap at_once;
      std::int64_t count = 0;
      for (std::int64_t row = 0; row < n_rows;) {
        const bool is_set = rows[static_cast<std::size_t>(row)];
        const std::int64_t first = row;
        while (row < n_rows && rows[static_cast<std::size_t>(row)] == is_set) ++row;
        if (!is_set) continue;
        count += row - first;
        at_once.set_all(7 * n_rows + first, row - first);
        for (std::int64_t at = first; at < row; ++at) one_by_one.set_all(3 * n_rows + at, 1);
      }
      const std::string value = one_by_one.encode();
      CHECK(value == at_once.encode());
      CHECK(value.size() <= 2 + static_cast<std::size_t>(n_rows) / 8);
      if (value.empty()) continue;
      const RowBitmap again = RowBitmap::parse(value);
      CHECK(again.count() == count);
      CHECK(again.encode() == value);
      bool alike = true;
      for (std::int64_t row = 0; row < n_rows; ++row) alike = alike && again.test(row) == rows[static_cast<std::size_t>(row)];
      CHECK(alike);
      RowBitmap emptied = again;
      const std::int64_t middle = static_cast<std::int64_t>(random() % n_rows);
      std::int64_t stood = 0;
      for (std::int64_t row = 0; row < middle; ++row) stood += rows[static_cast<std::size_t>(row)];
      CHECK(emptied.reset_all(5 * n_rows, middle) == stood);
      CHECK(emptied.count() == count - stood);
      CHECK(emptied.reset_all(5 * n_rows + middle, n_rows - middle) == count - stood);
      CHECK(emptied.encode().empty());
    }
  }
}

TEST_CASE("rows that lie together cost few bytes, and so does a single one") {
  RowBitmap bitmap;
  CHECK(bitmap.encode().empty());
  bitmap.set_all(4095, 1);
  CHECK(bitmap.encode().size() == 3);
  bitmap.set_all(0, n_rows);
  CHECK(bitmap.encode().size() == 5);
  CHECK(bitmap.reset_all(100, 1) == 1);
  CHECK(bitmap.reset_all(100, 1) == 0);
  CHECK(bitmap.encode().size() < 10);
  CHECK(bitmap.count() == n_rows - 1);
}

TEST_CASE("bitmaps that cannot be are refused") {
  const auto is_corrupt = [](const std::string& value) {
    try {
      RowBitmap::parse(value);
    } catch (const tq::Error& error) {
      return error.code == tq::ErrorCode::corrupt;
    }
    return false;
  };
  const std::string stretches("\x00\x80", 2);
  CHECK(RowBitmap::parse(stretches + std::string("\x00\x80\x20", 3)).count() == n_rows);
  CHECK(is_corrupt(stretches + std::string("\x00\x81\x20", 3)));                          // one row more than a chunk
  CHECK(is_corrupt(stretches + std::string("\x01\x80\x20", 3)));
  CHECK(is_corrupt(stretches + std::string("\x80\x20\x00\x01\x00", 5)));
  CHECK(is_corrupt(stretches + std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x01", 11)));  // wraps around
  CHECK(is_corrupt(stretches + std::string("\x05", 1)));
  CHECK(is_corrupt(std::string("\x01\x80\x01", 3)));
  CHECK(is_corrupt(std::string(1, '\0')));
}

}  // namespace
