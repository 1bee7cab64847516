// Where a task's record and marks lie, and the rows of its claims.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/index/bitmap.hpp"
#include "core/index/names.hpp"
#include "core/index/records.hpp"
#include "core/index/tables.hpp"
#include "core/index/txn.hpp"

namespace tq::index {

inline Key task_key(PartitionId partition, const std::string& task) { return Key(Table::tasks).u32(partition).name(task); }
inline BitmapPlace marks_of(PartitionId partition, std::uint64_t task) { return {Table::consumed, partition, task}; }

// Calls `visit(cursor)` at each stored bitmap of a task's marks, in the order of their rows.
template <class Visit>
void for_each_marks(const Txn& txn, PartitionId partition, std::uint64_t task, Visit&& visit) {
  const Key first = Key(Table::consumed).u32(partition).u64(task);
  Cursor cursor(txn, Table::consumed);
  for (bool found = cursor.seek(first); found && cursor.tail().substr(0, 12) == first.view().substr(1); found = cursor.next()) {
    visit(cursor);
  }
}

// Rows that the task was ever given since its reset: a mark stays when its row is cleared, since one that is made again is the
// sample that it was.
inline std::int64_t marked_rows(const Txn& txn, PartitionId partition, std::uint64_t task) {
  std::int64_t count = 0;
  for_each_marks(txn, partition, task, [&](const Cursor& cursor) { count += RowBitmap::parse(cursor.value()).count(); });
  return count;
}

// Of a name that the index holds.
inline std::optional<TaskRecord> stored_task(const Txn& txn, PartitionId partition, const std::string& task) {
  const auto value = txn.get(task_key(partition, task));
  if (!value) return std::nullopt;
  return TaskRecord::parse(*value);
}

// Of a name that somebody calls it by. Error(invalid): it is none.
inline std::optional<TaskRecord> task_record(const Txn& txn, PartitionId partition, const std::string& task) {
  check_name(task, "task");
  return stored_task(txn, partition, task);
}

// The numbers of the partition's tasks.
inline std::vector<std::uint64_t> task_ids(const Txn& txn, PartitionId partition) {
  std::vector<std::uint64_t> ids;
  Cursor cursor(txn, Table::tasks);
  for (bool found = cursor.seek(Key(Table::tasks).u32(partition)); found && key_u32(cursor.tail(), 0) == partition;
       found = cursor.next()) {
    ids.push_back(TaskRecord::parse(cursor.value()).id);
  }
  return ids;
}

}  // namespace tq::index
