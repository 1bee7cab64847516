// Counts of what is where. Kept by every transaction, so that reading them costs nothing that grows.
#include "core/index/impl.hpp"

namespace tq {

using namespace index;

namespace {

// The last record of a table of free spans by size.
std::uint64_t largest(const Txn& txn, Table by_size) {
  Cursor cursor(txn, by_size);
  const bool found = cursor.last_before(Key(by_size).u64(~std::uint64_t{0}).u64(~std::uint64_t{0}));
  return found ? key_u64(cursor.tail(), 0) : 0;
}

}  // namespace

IndexStats Index::stats() {
  const ReadTxn txn(*impl_->env);
  const auto value = txn.get(Key(Table::counters));
  if (!value) corrupt("the counters are missing");
  const Counters counters = Counters::parse(*value);
  IndexStats stats;
  stats.used_bytes = counters.used_bytes;
  stats.live_bytes = counters.live_bytes;
  stats.pending_bytes = counters.pending_bytes;
  stats.ahead_bytes = counters.ahead_bytes;
  stats.retired_bytes = counters.retired_bytes;
  stats.free_bytes = counters.free_bytes;
  stats.reserved_bytes = counters.reserved_bytes;
  stats.puts = counters.puts;
  stats.rows = counters.rows;
  stats.partitions = counters.partitions;
  stats.free_extents = counters.free_extents;
  stats.headroom_taken = counters.headroom_taken;
  stats.largest_free = largest(txn, Table::extents_by_size);
  stats.spill_total_bytes = impl_->format.spill_bytes;
  if (stats.spill_total_bytes > 0) {
    stats.spill_reserved_bytes = counters.spill.reserved_bytes;
    stats.spill_used_bytes = counters.spill.used_bytes;
    stats.spill_live_bytes = counters.spill.live_bytes;
    stats.spill_pending_bytes = counters.spill.pending_bytes;
    stats.spill_retired_bytes = counters.spill.retired_bytes;
    stats.spill_free_bytes = counters.spill.free_bytes;
    stats.spill_largest_free = largest(txn, Table::spill_by_size);
  }
  stats.index_used_bytes = txn.used_pages() * impl_->env->page_nbytes();
  stats.index_total_bytes = impl_->env->total_pages() * impl_->env->page_nbytes();
  return stats;
}

std::vector<Index::PartitionStats> Index::partition_stats() {
  const ReadTxn txn(*impl_->env);
  std::vector<PartitionStats> all;
  Cursor cursor(txn, Table::partitions);
  for (bool found = cursor.seek(Key(Table::partitions)); found; found = cursor.next()) {
    PartitionRecord record = PartitionRecord::parse(cursor.value());
    all.push_back({std::move(record.name), record.rows, record.live_bytes, record.keyed_rows});
  }
  return all;
}

}  // namespace tq
