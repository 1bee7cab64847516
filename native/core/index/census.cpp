// How many rows of each partition are how far: for the metrics.
#include <map>
#include <set>

#include "core/index/impl.hpp"
#include "core/index/task_records.hpp"

namespace tq {
namespace {

using namespace index;

void count_rows(const Txn& txn, const Partition& partition, Index::PartitionCensus& census) {
  // Most runs have one of a few sets of fields.
  std::map<std::vector<FieldId>, std::int64_t> rows_by_fields;
  DoomedRows doomed(txn, partition);
  RunCursor runs(txn, partition.id);
  std::vector<FieldId> ids;
  for (bool found = runs.first(); found; found = runs.next()) {
    std::int64_t living = 0;
    doomed.for_each_living(runs.run().start, runs.run().count, [&](RowIndex, std::int64_t count) { living += count; });
    if (living == 0) continue;
    ids.clear();
    runs.run().for_each([&](BlockRef, std::uint32_t, std::size_t n_fields, const char* in_run) {
      for (std::size_t i = 0; i < n_fields; ++i) ids.push_back(field_at(in_run, i));
    });
    std::sort(ids.begin(), ids.end());
    rows_by_fields[ids] += living;
  }
  std::set<FieldId> all;
  for (const auto& [fields, rows] : rows_by_fields) all.insert(fields.begin(), fields.end());
  for (const auto& [fields, rows] : rows_by_fields) {
    // A field stands in one entry of a run, so equal numbers are equal sets. A partition without fields has empty rows only.
    (fields.empty() ? census.empty : fields.size() == all.size() ? census.ready : census.partial) += rows;
  }
}

}  // namespace

std::vector<Index::PartitionCensus> Index::census() {
  const ReadTxn txn(*impl_->env);
  std::vector<PartitionCensus> all;
  Cursor cursor(txn, Table::partitions);
  for (bool found = cursor.seek(Key(Table::partitions)); found; found = cursor.next()) {
    Partition partition{key_u32(cursor.tail(), 0), PartitionRecord::parse(cursor.value())};
    PartitionCensus census;
    census.name = partition.record.name;
    count_rows(txn, partition, census);
    Cursor tasks(txn, Table::tasks);
    for (bool task = tasks.seek(Key(Table::tasks).u32(partition.id)); task && key_u32(tasks.tail(), 0) == partition.id;
         task = tasks.next()) {
      const TaskRecord record = TaskRecord::parse(tasks.value());
      census.consumed.emplace_back(std::string(tasks.tail().substr(4)), marked_rows(txn, partition.id, record.id));
    }
    all.push_back(std::move(census));
  }
  return all;
}

}  // namespace tq
