// Rows, keys, tags and tasks: one transaction of the index each, then the wake and the space that it set free.
#include "core/store/give_back.hpp"
#include "core/store/store.hpp"

namespace tq {

std::pair<bool, std::vector<RowIndex>> Store::find_keys(const std::string& partition,
                                                        const std::vector<std::string>& keys) {
  const Call call(*attachment_);
  bool found = false;
  std::vector<RowIndex> indexes = call.index().find_keys(partition, keys, &found);
  return {found, std::move(indexes)};
}

RowListing Store::list_rows(const std::string& partition) {
  const Call call(*attachment_);
  return call.index().list_rows(partition);
}

RowListing Store::describe_rows(const std::string& partition, const std::vector<RowIndex>& indexes) {
  const Call call(*attachment_);
  return call.index().describe_rows(partition, indexes);
}

void Store::merge_tags(const std::string& partition, const std::vector<RowIndex>& indexes,
                       const std::vector<std::string>& tags) {
  const Call call(*attachment_);
  call.index().merge_tags(partition, indexes, tags);
  wake_partition(*attachment_->control, partition);
}

std::int64_t Store::clear_rows(const std::string& partition, const RowSelector& rows) {
  const Call call(*attachment_);
  drain_give_back(*attachment_, call.index());
  const Index::ClearResult result = call.index().clear_rows(partition, rows);
  if (result.rows > 0) wake_partition(*attachment_->control, partition);
  retire_after_commit(*attachment_, call.index(), result.retired);
  return result.rows;
}

bool Store::clear_partition(const std::string& partition) {
  const Call call(*attachment_);
  drain_give_back(*attachment_, call.index());
  const Index::ClearResult result = call.index().clear_partition(partition);
  if (result.partition_found) wake_partition(*attachment_->control, partition);
  retire_after_commit(*attachment_, call.index(), result.retired);
  return result.partition_found;
}

std::vector<std::string> Store::partitions() {
  const Call call(*attachment_);
  return call.index().partitions();
}

PartitionId Store::ensure_partition(const std::string& partition) {
  const Call call(*attachment_);
  // Waiters call this too: only a partition that is new is news.
  if (const std::optional<PartitionId> existing = call.index().find_partition(partition)) return *existing;
  const PartitionId id = call.index().ensure_partition(partition);
  wake_partition(*attachment_->control, partition);
  return id;
}

std::vector<std::string> Store::field_names(const std::string& partition) {
  const Call call(*attachment_);
  return call.index().field_names(partition);
}

std::uint64_t Store::partition_version(const std::string& partition) {
  const Call call(*attachment_);
  const std::optional<PartitionId> id = call.index().find_partition(partition);
  return id ? call.index().partition_version(*id) : 0;
}

ProductionStatus Store::production(const std::string& partition, const std::vector<std::string>& fields,
                                   const std::optional<std::vector<RowIndex>>& indexes) {
  const Call call(*attachment_);
  return call.index().production(partition, fields, indexes);
}

Index::ConsumptionStatus Store::consumption(const std::string& partition, const std::string& task) {
  const Call call(*attachment_);
  return call.index().consumption(partition, task);
}

std::int64_t Store::unconsumed_rows(const std::string& partition) {
  const Call call(*attachment_);
  return call.index().unconsumed_rows(partition);
}

std::optional<std::int64_t> Store::consumed_rows(const std::string& partition, const std::string& task) {
  const Call call(*attachment_);
  return call.index().consumed_rows(partition, task);
}

TaskSnapshot Store::task_snapshot(const std::string& partition, const std::string& task,
                                  const std::vector<std::string>& fields) {
  const Call call(*attachment_);
  return call.index().task_snapshot(partition, task, fields);
}

bool Store::task_commit(const std::string& partition, const std::string& task, std::uint64_t task_version,
                        const std::vector<std::string>& fields, const std::vector<RowIndex>& consumed,
                        const std::string& sampler_state) {
  const Call call(*attachment_);
  const bool done = call.index().task_commit(partition, task, task_version, fields, consumed, sampler_state);
  if (done) wake_partition(*attachment_->control, partition);
  return done;
}

void Store::mark_rows(const std::string& partition, const std::string& task, const std::vector<RowIndex>& rows,
                      const std::optional<std::string>& sampler_state) {
  const Call call(*attachment_);
  call.index().mark_rows(partition, task, rows, sampler_state);
  wake_partition(*attachment_->control, partition);
}

bool Store::rename_partition(const std::string& partition, const std::string& to, std::uint64_t next_claim) {
  const Call call(*attachment_);
  const bool found = call.index().rename_partition(partition, to, next_claim);
  // What was under the new name is removed by the service; who waits for rows of that name looks again.
  if (found) wake_partition(*attachment_->control, to);
  return found;
}

void Store::task_reset(const std::string& partition, const std::optional<std::string>& task) {
  const Call call(*attachment_);
  call.index().task_reset(partition, task);
  wake_partition(*attachment_->control, partition);
}

}  // namespace tq
