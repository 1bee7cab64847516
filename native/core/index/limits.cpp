// Limits of partitions: set, shown, and looked at before a put asks for room. The check that counts is in publish.cpp.
#include <algorithm>

#include "core/index/impl.hpp"
#include "core/index/limit_check.hpp"

namespace tq {

using namespace index;

namespace {

// To every partition that `pattern` names, what the rules say now.
void apply_to_all(WriteTxn& txn, const std::string& pattern) {
  const auto rules = read_rules(txn);
  std::vector<Partition> all;
  {
    Cursor cursor(txn, Table::partitions);
    for (bool found = cursor.seek(Key(Table::partitions)); found; found = cursor.next()) {
      all.push_back({key_u32(cursor.tail(), 0), PartitionRecord::parse(cursor.value())});
    }
  }
  for (Partition& partition : all) {
    if (!matches(pattern, partition.record.name) && pattern != partition.record.name) continue;
    apply_rules(txn, partition, rules);
    store_partition(txn, partition);
  }
}

}  // namespace

void Index::set_limits(const std::string& pattern, const LimitRule& rule) {
  impl_->write_asked(Room::mark, [&](WriteTxn& txn) {
    merge_rule(txn, pattern, rule);
    apply_to_all(txn, pattern);
    return true;
  });
}

bool Index::remove_limits(const std::string& pattern) {
  return impl_->write(Room::release, [&](WriteTxn& txn) {
    if (!erase_rule(txn, pattern)) return false;
    apply_to_all(txn, pattern);
    return true;
  });
}

std::vector<std::pair<std::string, LimitRule>> Index::limit_rules() {
  const ReadTxn txn(*impl_->env);
  return read_rules(txn);
}

LimitReport Index::limit_report(const std::string& name) {
  const ReadTxn txn(*impl_->env);
  LimitReport report;
  const auto partition = partition_by_name(txn, name);
  if (!partition) {
    report.limits = limits_for(read_rules(txn), name);
    return report;
  }
  report.partition_found = true;
  report.live_bytes = partition->record.live_bytes;
  const auto record = flow_record(txn, *partition);
  if (!record) return report;
  report.limits = record->limits;
  report.shed_rows = record->shed_rows;
  if (record->limits.counts_rows()) report.unconsumed_rows = record->unconsumed;
  if (record->limits.max_version_lag) {
    report.newest_version = record->newest;
    report.oldest_version = oldest_version(txn, partition->id);
  }
  return report;
}

bool Index::set_weight_version(const std::string& name, std::int64_t version) {
  if (!may_exist(version)) throw Error(ErrorCode::invalid, "a weight version is an int from 0 to 2**62, not " + std::to_string(version));
  return impl_->write_asked(Room::put, [&](WriteTxn& txn) {
    if (!partition_by_name(txn, name) && !limits_for(read_rules(txn), name).max_version_lag) return false;
    Partition partition = partition_to_write(txn, name);
    FlowAccount flow(txn, partition);
    if (!flow || !flow.record().limits.max_version_lag) return false;
    flow.record().newest = version;
    flow.store();
    store_partition(txn, partition);
    return true;
  });
}

void Index::look_at_limits(const std::string& name, const RowSelector& rows, std::uint64_t nbytes, const std::vector<std::string>& tags) {
  std::optional<HashedKeys> keys;
  if (!rows.keys.empty()) keys.emplace(impl_->hasher, rows.keys);
  const ReadTxn txn(*impl_->env);
  const auto partition = partition_by_name(txn, name);
  FlowRecord record;
  if (partition) {
    const auto found = flow_record(txn, *partition);
    if (!found) return;
    record = *found;
  } else {
    record.limits = limits_for(read_rules(txn), name);
    if (!record.limits.any()) return;
  }
  Demand demand;
  demand.new_rows = rows.by == RowsBy::index ? 0 : row_count(rows);
  bool all_new = rows.by == RowsBy::fresh;
  if (keys && partition) {
    DoomedRows doomed(txn, *partition);
    const std::vector<RowIndex> known = look_up_keys(txn, partition->id, *keys, doomed);
    demand.new_rows = std::count(known.begin(), known.end(), -1);
  }
  if (demand.new_rows == row_count(rows)) all_new = true;
  demand.own_bytes = nbytes == 0 ? 0 : span_nbytes(nbytes);
  demand.bytes_before = partition ? partition->record.live_bytes : 0;
  // What an overwrite frees is known to the publication only.
  demand.bytes_after = all_new || demand.own_bytes > record.limits.max_bytes.value_or(~std::uint64_t{0})
                           ? demand.bytes_before + demand.own_bytes
                           : demand.bytes_before;
  demand.rows_before = record.unconsumed;
  if (record.limits.max_version_lag && all_new) {
    for (const std::string& map : tags) {
      const auto version = weight_version(map);
      if (!version) continue;
      demand.own_oldest = std::min(demand.own_oldest.value_or(*version), *version);
      demand.newest_after = std::max(demand.newest_after.value_or(record.newest.value_or(*version)), *version);
    }
    if (demand.own_oldest) {
      const auto stored = partition ? oldest_version(txn, partition->id) : std::nullopt;
      demand.oldest_after = std::min(*demand.own_oldest, stored.value_or(*demand.own_oldest));
    }
  }
  const auto excess = find_excess(record.limits, demand);
  if (!excess) return;
  if (record.limits.when_exceeded == WhenExceeded::shed && !excess->never) return;
  throw limit_error(name, record.limits, *excess);
}

}  // namespace tq
