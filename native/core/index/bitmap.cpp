#include "core/index/bitmap.hpp"

namespace tq::index {
namespace {

RowBitmap load_bitmap(const Txn& txn, const Key& key) {
  const auto value = txn.get(key);
  return value ? RowBitmap::parse(*value) : RowBitmap{};
}

}  // namespace

bool BitmapReader::test(RowIndex row) {
  if (row < 0) return false;
  const std::uint64_t chunk = RowBitmap::chunk_of(row);
  if (chunk_ != chunk) {
    bitmap_ = load_bitmap(txn_, place_.key(chunk));
    chunk_ = chunk;
  }
  return bitmap_.test(row);
}

std::int64_t change_bitmaps(WriteTxn& txn, const BitmapPlace& place, std::span<const Segment> segments,
                            const std::function<bool(RowBitmap&, RowIndex)>& change) {
  std::int64_t changed = 0;
  std::optional<std::uint64_t> chunk;
  RowBitmap bitmap;
  const auto store = [&] {
    if (!chunk) return;
    const std::string value = bitmap.encode();
    if (value.empty()) {
      txn.erase_if_present(place.key(*chunk));
    } else {
      txn.put(place.key(*chunk), value);
    }
  };
  for (const Segment& segment : segments) {
    for (RowIndex row = segment.row; row < segment.row + segment.count; ++row) {
      if (chunk != RowBitmap::chunk_of(row)) {
        store();
        chunk = RowBitmap::chunk_of(row);
        bitmap = load_bitmap(txn, place.key(*chunk));
      }
      if (change(bitmap, row)) ++changed;
    }
  }
  store();
  return changed;
}

}  // namespace tq::index
