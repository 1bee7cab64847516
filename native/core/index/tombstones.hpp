// Rows that are cleared but whose records are still there. A clear of more rows than one transaction should touch first
// commits a bitmap of them; from that commit on every reader passes them over, and their records go in batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/index/bitmap.hpp"
#include "core/index/names.hpp"
#include "core/index/runs.hpp"
#include "core/index/txn.hpp"

namespace tq::index {

// The doomed rows of a partition, as one transaction sees them. Costs nothing while there are none.
class DoomedRows {
 public:
  DoomedRows(const Txn& txn, const Partition& partition)
      : any_(partition.record.doomed_rows > 0), rows_(txn, {Table::doomed_rows, partition.id, std::nullopt}) {}

  bool any() const { return any_; }
  bool contains(RowIndex row) { return any_ && rows_.test(row); }
  // Calls `part(first, count)` for every stretch of [start, start + count) that is not doomed, ascending.
  template <class Part>
  void for_each_living(RowIndex start, std::int64_t count, Part&& part) {
    if (!any_) return part(start, count);
    const RowIndex end = start + count;
    for (RowIndex row = start; row < end;) {
      if (contains(row)) {
        ++row;
        continue;
      }
      const RowIndex first = row;
      while (row < end && !contains(row)) ++row;
      part(first, row - first);
    }
  }

 private:
  bool any_;
  BitmapReader rows_;
};

// Hides a partition: its name and record are gone, its id is on the list of those whose records remain to be removed.
void doom_partition(WriteTxn& txn, const Partition& partition);
// Marks rows (segments, ascending) as doomed.
void doom_rows(WriteTxn& txn, PartitionId partition, std::span<const Segment> segments);
// Takes the marks of these rows off again, their records being gone; returns how many stood.
std::int64_t forget_doomed(WriteTxn& txn, PartitionId partition, std::span<const Segment> segments);
// The first doomed rows of a partition, at most `max_rows`, ascending.
std::vector<Segment> some_doomed(const Txn& txn, PartitionId partition, std::int64_t max_rows);

}  // namespace tq::index
