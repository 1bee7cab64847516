// Consumption: which rows a task has been given, and the state of its sampler. The sampler itself runs outside of any
// transaction, on a snapshot; the commit checks that what it chose still holds.
#include "core/index/flow_account.hpp"
#include "core/index/impl.hpp"
#include "core/index/task_records.hpp"

namespace tq {
namespace {

using namespace index;

// A task that nobody has committed to yet has no record. Its version is the partition's id, marked, so that a commit that
// was computed before the partition was cleared cannot meet a new partition of the same name.
constexpr std::uint64_t no_task_version(PartitionId partition) { return std::uint64_t{1} << 63 | partition; }

// The fields' ids, ascending, each once; nullopt when the session never had one of them: then no row has all.
std::optional<std::vector<FieldId>> field_ids(const Txn& txn, FieldNames& names, const std::vector<std::string>& fields) {
  std::vector<FieldId> ids;
  for (const std::string& field : fields) {
    const auto id = names.id(txn, field);
    if (!id) return std::nullopt;
    ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

bool has_all(const RunView& run, const std::vector<FieldId>& ids) {
  std::size_t found = 0;
  run.for_each([&](BlockRef, std::uint32_t, std::size_t n_fields, const char* in_run) {
    auto wanted = ids.begin();
    for (std::size_t i = 0; i < n_fields && wanted != ids.end(); ++i) {
      const FieldId id = field_at(in_run, i);
      while (wanted != ids.end() && *wanted < id) ++wanted;
      if (wanted != ids.end() && *wanted == id) ++found;
    }
  });
  return found == ids.size();  // a field stands in one entry of a run
}

void erase_marks(WriteTxn& txn, PartitionId partition, std::uint64_t task) {
  for_each_marks(txn, partition, task, [](Cursor& cursor) { cursor.erase(); });
}

}  // namespace

Index::ConsumptionStatus Index::consumption(const std::string& name, const std::string& task) {
  const ReadTxn txn(*impl_->env);
  ConsumptionStatus status;
  const auto partition = partition_by_name(txn, name);
  if (!partition) return status;
  status.partition_found = true;
  const auto record = task_record(txn, partition->id, task);
  BitmapReader marks(txn, marks_of(partition->id, record ? record->id : 0));
  DoomedRows doomed(txn, *partition);
  RunCursor runs(txn, partition->id);
  for (bool found = runs.first(); found; found = runs.next()) {
    doomed.for_each_living(runs.run().start, runs.run().count, [&](RowIndex first, std::int64_t count) {
      for (RowIndex row = first; row < first + count; ++row) {
        status.indexes.push_back(row);
        status.consumed.push_back(record && marks.test(row) ? 1 : 0);
      }
    });
  }
  return status;
}

std::optional<std::int64_t> Index::consumed_rows(const std::string& name, const std::string& task) {
  const ReadTxn txn(*impl_->env);
  const auto partition = partition_by_name(txn, name);
  if (!partition) return std::nullopt;
  const auto record = task_record(txn, partition->id, task);
  if (!record) return 0;
  return marked_rows(txn, partition->id, record->id);
}

std::int64_t Index::unconsumed_rows(const std::string& name) {
  const ReadTxn txn(*impl_->env);
  const auto partition = partition_by_name(txn, name);
  if (!partition) return 0;
  std::vector<BitmapReader> marks;
  Cursor tasks(txn, Table::tasks);
  for (bool found = tasks.seek(Key(Table::tasks).u32(partition->id)); found && key_u32(tasks.tail(), 0) == partition->id;
       found = tasks.next()) {
    marks.emplace_back(txn, marks_of(partition->id, TaskRecord::parse(tasks.value()).id));
  }
  std::int64_t count = 0;
  DoomedRows doomed(txn, *partition);
  RunCursor runs(txn, partition->id);
  for (bool found = runs.first(); found; found = runs.next()) {
    if (runs.run().n_entries == 0) continue;
    doomed.for_each_living(runs.run().start, runs.run().count, [&](RowIndex first, std::int64_t n) {
      for (RowIndex row = first; row < first + n; ++row) {
        if (std::none_of(marks.begin(), marks.end(), [&](BitmapReader& task) { return task.test(row); })) ++count;
      }
    });
  }
  return count;
}

TaskSnapshot Index::task_snapshot(const std::string& name, const std::string& task, const std::vector<std::string>& fields) {
  const ReadTxn txn(*impl_->env);
  TaskSnapshot snapshot;
  const auto partition = partition_by_name(txn, name);
  if (!partition) return snapshot;
  snapshot.partition_found = true;
  snapshot.partition_id = partition->id;
  const auto record = task_record(txn, partition->id, task);
  snapshot.task_version = record ? record->version : no_task_version(partition->id);
  if (record) snapshot.sampler_state = record->sampler_state;
  Verdicts verdicts(impl_->judge);
  // A task without a record has no claims; no task has the number 0.
  ClaimedRows claimed(txn, partition->id, record ? record->id : 0, verdicts);
  for (const Segment& segment : claimed.segments()) {
    for (std::int64_t i = 0; i < segment.count; ++i) snapshot.claimed.push_back(segment.row + i);
  }
  if (const auto deadline_ns = claimed.next_deadline_ns()) snapshot.next_lapse_ns = *deadline_ns - verdicts.now_ns();
  const auto ids = field_ids(txn, impl_->caches->fields, fields);
  if (!ids) return snapshot;
  BitmapReader marks(txn, marks_of(partition->id, record ? record->id : 0));
  DoomedRows doomed(txn, *partition);
  RunCursor runs(txn, partition->id);
  for (bool found = runs.first(); found; found = runs.next()) {
    if (!has_all(runs.run(), *ids)) continue;
    doomed.for_each_living(runs.run().start, runs.run().count, [&](RowIndex first, std::int64_t count) {
      for (RowIndex row = first; row < first + count; ++row) {
        if (!record || (!marks.test(row) && !claimed.contains(row))) snapshot.ready.push_back(row);
      }
    });
  }
  return snapshot;
}

bool Index::Impl::take_rows(const TaskChoice& choice, const TakeRows& take, const ClaimGrant* grant) {
  if (!std::all_of(choice.rows.begin(), choice.rows.end(), may_exist)) return false;
  const std::vector<Segment> segments = make_segments(choice.rows, true);
  const auto note = [&](bool taken) {
    if (!taken) return std::optional<RequestRecord>();
    RequestRecord done;
    done.kind = grant == nullptr ? RequestKind::consume : RequestKind::claim;
    done.indexes = choice.rows;
    if (grant != nullptr) {
      done.fencing = grant->fencing;
      done.deadline_ns = grant->deadline_ns;
    }
    return std::optional(std::move(done));
  };
  return write_asked(Room::mark, [&](WriteTxn& txn) {
    auto partition = partition_by_name(txn, choice.partition);
    if (!partition) return false;
    auto record = task_record(txn, partition->id, choice.task);
    if (choice.task_version != (record ? record->version : no_task_version(partition->id))) return false;
    const auto ids = field_ids(txn, caches->fields, choice.fields);
    if (!ids && !segments.empty()) return false;
    Verdicts verdicts(judge);
    BitmapReader marks(txn, marks_of(partition->id, record ? record->id : 0));
    ClaimedRows claimed(txn, partition->id, record ? record->id : 0, verdicts);
    DoomedRows doomed(txn, *partition);
    {
      RunCursor runs(txn, partition->id);
      for (const Segment& segment : segments) {
        for (RowIndex row = segment.row; row < segment.row + segment.count; ++row) {
          if (row < 0 || !runs.seek(row) || runs.run().start > row || doomed.contains(row)) return false;
          if (record && (marks.test(row) || claimed.contains(row))) return false;
          if ((row == segment.row || row == runs.run().start) && !has_all(runs.run(), *ids)) return false;
        }
      }
    }
    if (!record) record = TaskRecord{txn.counters.next_task++, 0, {}};
    record->version += 1;
    record->sampler_state = choice.sampler_state;
    // Before the rows are taken: what counts as consumed is asked of the tasks on record.
    txn.put(task_key(partition->id, choice.task), record->encode());
    take(txn, *partition, record->id, segments, verdicts);
    store_partition(txn, *partition);
    return true;
  }, note);
}

bool Index::task_commit(const std::string& name, const std::string& task, std::uint64_t task_version,
                        const std::vector<std::string>& fields, const std::vector<RowIndex>& consumed,
                        const std::string& sampler_state) {
  return impl_->take_rows({name, task, task_version, fields, consumed, sampler_state},
                          [](WriteTxn& txn, const Partition& partition, std::uint64_t id, std::span<const Segment> rows, Verdicts&) {
                            FlowMarks flow(txn, partition, rows);
                            set_rows(txn, marks_of(partition.id, id), rows);
                            flow.done();
                          });
}

void Index::task_reset(const std::string& name, const std::optional<std::string>& task) {
  impl_->write_asked(Room::release, [&](WriteTxn& txn) {
    auto partition = partition_by_name(txn, name);
    if (!partition) return false;
    std::vector<std::string> tasks;
    if (task) {
      if (task_record(txn, partition->id, *task)) tasks.push_back(*task);
    } else {
      const Key first = Key(Table::tasks).u32(partition->id);
      Cursor cursor(txn, Table::tasks);
      for (bool found = cursor.seek(first); found && key_u32(cursor.tail(), 0) == partition->id; found = cursor.next()) {
        tasks.emplace_back(cursor.tail().substr(4));
      }
    }
    if (tasks.empty()) return false;
    for (const std::string& each : tasks) {
      TaskRecord record = *stored_task(txn, partition->id, each);
      erase_marks(txn, partition->id, record.id);
      erase_claims(txn, partition->id, record.id);
      // The sampler starts over as well: what it has cached are rows that it handed out. The version goes on, so that a
      // commit computed before the reset is refused.
      record.version += 1;
      record.sampler_state.clear();
      txn.put(task_key(partition->id, each), record.encode());
    }
    recount_flow(txn, *partition);
    store_partition(txn, *partition);
    return true;
  });
}

}  // namespace tq
