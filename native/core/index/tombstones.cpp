#include "core/index/tombstones.hpp"

namespace tq::index {
namespace {

BitmapPlace place_of(PartitionId partition) { return {Table::doomed_rows, partition, std::nullopt}; }

}  // namespace

void doom_partition(WriteTxn& txn, const Partition& partition) {
  txn.erase(Key(Table::partition_names).name(partition.record.name));
  txn.erase(Key(Table::partitions).u32(partition.id));
  if (partition.record.limited) txn.erase(Key(Table::flow).u32(partition.id));
  txn.put(Key(Table::doomed_partitions).u32(partition.id), partition.record.name);
  txn.counters.rows -= partition.record.rows;
  txn.counters.partitions -= 1;
}

void doom_rows(WriteTxn& txn, PartitionId partition, std::span<const Segment> segments) {
  set_rows(txn, place_of(partition), segments);
}

std::int64_t forget_doomed(WriteTxn& txn, PartitionId partition, std::span<const Segment> segments) {
  return reset_rows(txn, place_of(partition), segments);
}

std::vector<Segment> some_doomed(const Txn& txn, PartitionId partition, std::int64_t max_rows) {
  std::vector<Segment> segments;
  std::int64_t n = 0;
  Cursor cursor(txn, Table::doomed_rows);
  for (bool found = cursor.seek(place_of(partition).key(0)); found && key_u32(cursor.tail(), 0) == partition && n < max_rows;
       found = cursor.next()) {
    const RowBitmap bitmap = RowBitmap::parse(cursor.value());
    const RowIndex first = RowBitmap::first_row(key_u64(cursor.tail(), 4));
    for (RowIndex row = first; row < first + RowBitmap::n_rows && n < max_rows; ++row) {
      if (!bitmap.test(row)) continue;
      ++n;
      if (!segments.empty() && segments.back().row + segments.back().count == row) {
        ++segments.back().count;
      } else {
        segments.push_back({row, 1, 0, 0});
      }
    }
  }
  return segments;
}

}  // namespace tq::index
