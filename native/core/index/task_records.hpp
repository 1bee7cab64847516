// Where a task's record and marks lie, and the rows of its claims.
#pragma once

#include <optional>
#include <string>

#include "core/index/bitmap.hpp"
#include "core/index/names.hpp"
#include "core/index/records.hpp"
#include "core/index/tables.hpp"
#include "core/index/txn.hpp"

namespace tq::index {

inline Key task_key(PartitionId partition, const std::string& task) { return Key(Table::tasks).u32(partition).name(task); }
inline BitmapPlace marks_of(PartitionId partition, std::uint64_t task) { return {Table::consumed, partition, task}; }

inline std::optional<TaskRecord> task_record(const Txn& txn, PartitionId partition, const std::string& task) {
  check_name(task, "task");
  const auto value = txn.get(task_key(partition, task));
  if (!value) return std::nullopt;
  return TaskRecord::parse(*value);
}

}  // namespace tq::index
