// What a store needs that keeps a copy of another one's partition: marks as they were made there, and the partition's own name
// when it takes its place.
#include "core/index/flow_account.hpp"
#include "core/index/impl.hpp"
#include "core/index/task_records.hpp"
#include "core/index/tombstones.hpp"

namespace tq {

using namespace index;

void Index::mark_rows(const std::string& name, const std::string& task, const std::vector<RowIndex>& rows,
                      const std::optional<std::string>& sampler_state) {
  if (!std::all_of(rows.begin(), rows.end(), may_exist)) throw Error(ErrorCode::invalid, "marks of rows that cannot exist");
  const std::vector<Segment> segments = make_segments(rows, true);
  impl_->write_asked(Room::mark, [&](WriteTxn& txn) {
    Partition partition = partition_to_write(txn, name);
    auto record = task_record(txn, partition.id, task);
    if (!record) record = TaskRecord{txn.counters.next_task++, 0, {}};
    record->version += 1;
    if (sampler_state) record->sampler_state = *sampler_state;
    // Before the rows are marked: what counts as consumed is asked of the tasks on record.
    txn.put(task_key(partition.id, task), record->encode());
    FlowMarks flow(txn, partition, segments);
    set_rows(txn, marks_of(partition.id, record->id), segments);
    flow.done();
    // Of rows that may never have been here: they are given out, wherever that was.
    txn.counters.other_rows += static_cast<std::int64_t>(rows.size());
    if (!segments.empty()) txn.counters.other_end = std::max(txn.counters.other_end, segments.back().row + segments.back().count);
    store_partition(txn, partition);
    return true;
  }, [&](bool) {
    RequestRecord record;
    record.kind = RequestKind::consume;
    record.indexes = rows;
    return std::optional(std::move(record));
  });
}

bool Index::rename_partition(const std::string& name, const std::string& to, std::uint64_t next_claim) {
  check_name(to, "partition");
  return impl_->write(Room::release, [&](WriteTxn& txn) {
    auto partition = partition_by_name(txn, name);
    if (!partition) return false;
    if (name == to) throw Error(ErrorCode::invalid, "a partition was given the name that it has");
    // Its records go with the next finish_clears.
    if (const auto there = partition_by_name(txn, to)) doom_partition(txn, *there);
    txn.erase(Key(Table::partition_names).name(name));
    Writer id;
    txn.put(Key(Table::partition_names).name(to), id.number(partition->id).view());
    partition->record.name = to;
    txn.counters.next_claim = std::max(txn.counters.next_claim, next_claim);
    // What was not held against the limits of its name is now, and is more than they allow, maybe: puts meet that.
    apply_rules(txn, *partition, read_rules(txn));
    store_partition(txn, *partition);
    return true;
  });
}

}  // namespace tq
