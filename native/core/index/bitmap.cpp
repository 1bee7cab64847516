#include "core/index/bitmap.hpp"

#include <algorithm>
#include <cstring>

namespace tq::index {
namespace {

RowBitmap load_bitmap(const Txn& txn, const Key& key) {
  const auto value = txn.get(key);
  return value ? RowBitmap::parse(*value) : RowBitmap{};
}

void store_bitmap(WriteTxn& txn, const Key& key, const RowBitmap& bitmap) {
  const std::string value = bitmap.encode();
  if (value.empty()) {
    txn.erase_if_present(key);
  } else {
    txn.put(key, value);
  }
}

// Calls `change(bitmap, first, count)` for the part of every segment that lies in one chunk.
template <class Change>
void change_bitmaps(WriteTxn& txn, const BitmapPlace& place, std::span<const Segment> segments, Change&& change) {
  std::optional<std::uint64_t> chunk;
  RowBitmap bitmap;
  const auto store = [&] {
    if (chunk) store_bitmap(txn, place.key(*chunk), bitmap);
  };
  for (const Segment& segment : segments) {
    const RowIndex end = segment.row + segment.count;
    for (RowIndex row = segment.row; row < end;) {
      if (chunk != RowBitmap::chunk_of(row)) {
        store();
        chunk = RowBitmap::chunk_of(row);
        bitmap = load_bitmap(txn, place.key(*chunk));
      }
      const RowIndex stop = std::min(end, RowBitmap::first_row(*chunk) + RowBitmap::n_rows);
      change(bitmap, row, stop - row);
      row = stop;
    }
  }
  store();
}

// Calls `visit(word, rows)` for every word of a bitmap that has some of `count` rows of one chunk, `rows` being the bits of these.
template <class Visit>
void for_each_word(RowIndex first, std::int64_t count, Visit&& visit) {
  for (std::int64_t row = first % RowBitmap::n_rows, end = row + count; row < end;) {
    const std::int64_t n = std::min<std::int64_t>(64 - row % 64, end - row);
    visit(static_cast<std::size_t>(row / 64), (n == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << n) - 1) << (row % 64));
    row += n;
  }
}

constexpr std::uint16_t stretches_follow = 0x8000;
constexpr std::size_t nbytes = RowBitmap::n_rows / 8;

}  // namespace

RowBitmap RowBitmap::parse(std::string_view value) {
  Reader in(value);
  RowBitmap bitmap;
  const std::size_t first = in.number<std::uint16_t>();
  if (first == stretches_follow) {
    std::uint64_t row = 0;
    while (in.left() > 0) {
      const std::uint64_t gap = in.varint();
      const std::uint64_t n_set = in.varint();
      if (gap > n_rows - row || n_set > n_rows - row - gap) corrupt("a bitmap of more rows than a chunk");
      bitmap.set_all(static_cast<RowIndex>(row + gap), static_cast<std::int64_t>(n_set));
      row += gap + n_set;
    }
    return bitmap;
  }
  if (first + in.left() > nbytes) corrupt("a bitmap of more rows than a chunk");
  const std::string_view bytes = in.bytes(in.left());
  std::memcpy(reinterpret_cast<char*>(bitmap.words_.data()) + first, bytes.data(), bytes.size());
  return bitmap;
}

std::string RowBitmap::encode() const {
  const std::string_view bytes(reinterpret_cast<const char*>(words_.data()), nbytes);
  const std::size_t first = std::min(bytes.find_first_not_of('\0'), nbytes);
  if (first == nbytes) return {};
  const std::size_t end = bytes.find_last_not_of('\0') + 1;
  std::string stretches = as_stretches();
  if (stretches.size() < 2 + end - first) return stretches;
  Writer out;
  return std::string(out.number(static_cast<std::uint16_t>(first)).bytes(bytes.substr(first, end - first)).view());
}

std::string RowBitmap::as_stretches() const {
  Writer out;
  out.number(stretches_follow);
  for (std::int64_t row = 0; row < n_rows;) {
    const std::int64_t gap = alike(row, false);
    const std::int64_t n_set = alike(row + gap, true);
    if (n_set == 0) break;
    out.varint(static_cast<std::uint64_t>(gap)).varint(static_cast<std::uint64_t>(n_set));
    row += gap + n_set;
  }
  return std::string(out.view());
}

std::int64_t RowBitmap::alike(std::int64_t row, bool are_set) const {
  const std::int64_t start = row;
  while (row < n_rows) {
    const std::uint64_t others = (are_set ? ~word_of(row) : word_of(row)) >> (row % 64);
    if (others != 0) return std::min<std::int64_t>(row + std::countr_zero(others), n_rows) - start;
    row += 64 - row % 64;
  }
  return n_rows - start;
}

void RowBitmap::set_all(RowIndex first, std::int64_t count) {
  for_each_word(first, count, [&](std::size_t word, std::uint64_t rows) { words_[word] |= rows; });
}

std::int64_t RowBitmap::reset_all(RowIndex first, std::int64_t count) {
  std::int64_t stood = 0;
  for_each_word(first, count, [&](std::size_t word, std::uint64_t rows) {
    stood += std::popcount(words_[word] & rows);
    words_[word] &= ~rows;
  });
  return stood;
}

std::int64_t RowBitmap::count() const {
  std::int64_t n = 0;
  for (const std::uint64_t word : words_) n += std::popcount(word);
  return n;
}

bool BitmapReader::test(RowIndex row) {
  if (row < 0) return false;
  const std::uint64_t chunk = RowBitmap::chunk_of(row);
  if (chunk_ != chunk) {
    bitmap_ = load_bitmap(txn_, place_.key(chunk));
    chunk_ = chunk;
  }
  return bitmap_.test(row);
}

void set_rows(WriteTxn& txn, const BitmapPlace& place, std::span<const Segment> segments) {
  change_bitmaps(txn, place, segments, [](RowBitmap& bitmap, RowIndex first, std::int64_t count) { bitmap.set_all(first, count); });
}

std::int64_t reset_rows(WriteTxn& txn, const BitmapPlace& place, std::span<const Segment> segments) {
  std::int64_t stood = 0;
  change_bitmaps(txn, place, segments, [&](RowBitmap& bitmap, RowIndex first, std::int64_t count) { stood += bitmap.reset_all(first, count); });
  return stood;
}

}  // namespace tq::index
