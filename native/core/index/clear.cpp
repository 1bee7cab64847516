// Removal of rows and partitions: atomic to readers, bounded per transaction.
//
// A small clear is one transaction. A large one first commits a tombstone (a bitmap of the rows, or the partition's id on
// the list of doomed partitions and its name gone), after which nobody sees the rows, and then removes their records in
// batches. What a dead process left of it, `finish_clears` continues.
#include "core/index/clear_parts.hpp"
#include "core/index/flow_account.hpp"
#include "core/index/impl.hpp"
#include "core/pause.hpp"

namespace tq {

namespace index {

std::vector<Segment> living_rows(const Txn& txn, const Partition& partition, std::span<const Segment> wanted) {
  std::vector<Segment> found;
  RunCursor cursor(txn, partition.id);
  DoomedRows doomed(txn, partition);
  for (const Segment& segment : wanted) {
    const RowIndex end = segment.row + segment.count;
    for (RowIndex row = std::max<RowIndex>(segment.row, 0); row < end && cursor.seek(row) && cursor.run().start < end;) {
      const RowIndex first = std::max(row, cursor.run().start);
      const RowIndex stop = std::min(end, cursor.run().end());
      doomed.for_each_living(first, stop - first, [&](RowIndex from, std::int64_t n) { found.push_back({from, n, 0, 0}); });
      row = stop;
    }
  }
  return found;
}

std::vector<Segment> affordable(const Txn& txn, const Partition& partition, std::span<const Segment> segments, std::size_t units,
                                bool* all) {
  std::vector<Segment> front;
  std::int64_t left = static_cast<std::int64_t>(units);
  const bool keyed = partition.record.keyed_rows > 0;
  RunCursor cursor(txn, partition.id);
  *all = true;
  for (const Segment& segment : segments) {
    const RowIndex end = segment.row + segment.count;
    for (RowIndex row = segment.row; row < end;) {
      RowIndex stop = end;
      std::int64_t cost = 1;
      if (cursor.seek(row) && cursor.run().start <= row) {
        stop = std::min(end, cursor.run().end());
        cost += cursor.run().n_entries;
      }
      if (keyed) {
        stop = std::min(stop, row + std::max<std::int64_t>(1, left - cost));
        cost += stop - row;
      }
      if (cost > left && !front.empty()) {
        *all = false;
        return front;
      }
      left -= cost;
      front.push_back({row, stop - row, 0, 0});
      row = stop;
    }
  }
  return front;
}

}  // namespace index

namespace {

using namespace index;

constexpr std::int64_t max_rows_looked_at = 65536;  // of one batch; the records they have are bounded by clear_units

// Removes up to `budget` records of a table under a partition; true when none is left.
bool remove_some(WriteTxn& txn, Table table, PartitionId partition, std::size_t& budget, std::size_t records_a_unit) {
  Cursor cursor(txn, table);
  std::size_t left = budget * records_a_unit;
  bool found = cursor.seek(Key(table).u32(partition));
  for (; found && key_u32(cursor.tail(), 0) == partition; found = cursor.next()) {
    if (left == 0) {
      budget = 0;
      return false;
    }
    --left;
    cursor.erase();
  }
  budget = left / records_a_unit;
  return true;
}

// Rows are removed already when batches go on, so a writer that is stuck elsewhere is no failure of the clear: whoever
// calls finish_clears does the rest.
template <class Batch>
std::vector<BlockRef> in_batches(Batch&& batch) {
  std::vector<BlockRef> retired;
  try {
    for (bool more = true; more;) {
      more = batch(retired);
      TQ_PAUSE("index.clear.between_batches");
    }
  } catch (const Error& error) {
    if (error.code != ErrorCode::timeout) throw;
  }
  return retired;
}

std::optional<RequestRecord> record_of(const Index::ClearResult& cleared) {
  RequestRecord record;
  record.kind = RequestKind::clear;
  record.rows = cleared.partition_found ? cleared.rows : -1;
  return record;
}

void append(std::vector<BlockRef>& all, const std::vector<BlockRef>& more) { all.insert(all.end(), more.begin(), more.end()); }

}  // namespace

std::vector<BlockRef> Index::Impl::remove_rows(WriteTxn& txn, Partition& partition, std::span<const Segment> rows) {
  LiveCells live;
  RunRewriter rewriter(txn, partition.id, live);
  rewriter.plan(rows, BlockRef{}, [](const auto&...) { return nullptr; });
  rewriter.apply();
  LiveCells::Removed removed = live.apply(txn, partition.record.name);
  partition.record.live_bytes -= removed.held_bytes;

  std::vector<RowUpdate> updates;
  for (const Segment& segment : rows) {
    for (std::int64_t i = 0; i < segment.count; ++i) updates.push_back({segment.row + i, {}, {}, true});
  }
  RowInfoWriter info(txn, partition.id);
  info.apply(updates);
  std::vector<HashedRow> hashed;
  hashed.reserve(info.removed_keys.size());
  for (const RemovedKey& key : info.removed_keys) hashed.push_back({hasher(key.key), key.row});
  remove_keys(txn, partition.id, hashed);
  partition.record.keyed_rows -= static_cast<std::int64_t>(hashed.size());
  return std::move(removed.retired);
}

Index::ClearResult Index::clear_rows(const std::string& name, const RowSelector& rows) {
  ClearResult result;
  PartitionId doomed = 0;
  result = impl_->write_asked(Room::release, [&](WriteTxn& txn) {
    ClearResult cleared;
    doomed = 0;
    auto partition = partition_by_name(txn, name);
    if (!partition) return cleared;
    cleared.partition_found = true;
    DoomedRows not_these(txn, *partition);
    std::vector<RowIndex> wanted = impl_->find_rows(txn, *partition, rows, not_these);
    std::erase(wanted, -1);
    const std::vector<Segment> segments = living_rows(txn, *partition, make_segments(wanted, true));
    for (const Segment& segment : segments) cleared.rows += segment.count;
    if (cleared.rows == 0) return cleared;
    FlowAccount flow(txn, *partition);
    flow.remove_rows(segments);
    flow.store();
    bool all = false;
    affordable(txn, *partition, segments, clear_units(txn), &all);
    if (all) {
      cleared.retired = impl_->remove_rows(txn, *partition, segments);
    } else {
      doom_rows(txn, partition->id, segments);
      partition->record.doomed_rows += cleared.rows;
      doomed = partition->id;
    }
    partition->record.rows -= cleared.rows;
    txn.counters.rows -= cleared.rows;
    store_partition(txn, *partition);
    return cleared;
  }, record_of);
  if (doomed != 0) {
    TQ_PAUSE("index.clear.between_batches");
    append(result.retired, impl_->remove_doomed_rows(doomed));
  }
  return result;
}

std::vector<BlockRef> Index::Impl::remove_doomed_rows(PartitionId id) {
  return in_batches([&](std::vector<BlockRef>& retired) {
    std::vector<BlockRef> of_batch;
    const bool more = write(Room::release, [&](WriteTxn& txn) {
      of_batch.clear();
      auto record = partition_by_id(txn, id);
      if (!record || record->doomed_rows == 0) return false;
      Partition partition{id, std::move(*record)};
      bool all = false;
      const std::vector<Segment> batch =
          affordable(txn, partition, some_doomed(txn, id, max_rows_looked_at), clear_units(txn), &all);
      of_batch = remove_rows(txn, partition, batch);
      const std::int64_t gone = forget_doomed(txn, id, batch);
      if (batch.empty() || gone > partition.record.doomed_rows) corrupt("tombstones that do not add up");
      partition.record.doomed_rows -= gone;
      // What readers see has not changed, hence neither has the version.
      txn.put(Key(Table::partitions).u32(id), partition.record.encode());
      return partition.record.doomed_rows > 0;
    });
    append(retired, of_batch);
    return more;
  });
}

Index::ClearResult Index::clear_partition(const std::string& name) {
  ClearResult result;
  PartitionId id = 0;
  result = impl_->write_asked(Room::release, [&](WriteTxn& txn) {
    ClearResult cleared;
    const auto partition = partition_by_name(txn, name);
    if (!partition) return cleared;
    cleared.partition_found = true;
    cleared.rows = partition->record.rows;
    id = partition->id;
    doom_partition(txn, *partition);
    return cleared;
  }, record_of);
  if (result.partition_found) {
    TQ_PAUSE("index.clear.between_batches");
    result.retired = impl_->remove_doomed_partition(id);
  }
  return result;
}

std::vector<BlockRef> Index::Impl::remove_doomed_partition(PartitionId id) {
  return in_batches([&](std::vector<BlockRef>& retired) {
    std::vector<BlockRef> of_batch;
    const bool more = write(Room::release, [&](WriteTxn& txn) {
      of_batch.clear();
      const auto doomed = txn.get(Key(Table::doomed_partitions).u32(id));
      if (!doomed) return false;
      const std::string name(*doomed);
      std::size_t budget = clear_units(txn);
      LiveCells live;
      {
        RunCursor cursor(txn, id);
        for (bool found = cursor.first(); found; found = cursor.next()) {
          const RunView& run = cursor.run();
          const std::size_t cost = std::size_t{1} + run.n_entries;
          if (cost > budget && live.size() > 0) {
            budget = 0;
            break;
          }
          budget -= std::min(budget, cost);
          run.for_each([&](BlockRef ref, std::uint32_t, std::size_t n_fields, const char*) {
            live.remove(ref, n_fields * static_cast<std::uint64_t>(run.count));
          });
          cursor.erase();
        }
      }
      of_batch = live.apply(txn, name).retired;
      if (budget == 0) return true;
      const bool empty = remove_some(txn, Table::rowinfo, id, budget, 1) && remove_some(txn, Table::key_rows, id, budget, 16) &&
                         remove_some(txn, Table::consumed, id, budget, 4) && remove_some(txn, Table::claims, id, budget, 1) && remove_some(txn, Table::tasks, id, budget, 1) &&
                         remove_some(txn, Table::row_versions, id, budget, 16) &&
                         remove_some(txn, Table::doomed_rows, id, budget, 4) &&
                         remove_some(txn, Table::partition_fields, id, budget, 16);
      if (empty) txn.erase(Key(Table::doomed_partitions).u32(id));
      return !empty;
    });
    append(retired, of_batch);
    return more;
  });
}

std::vector<BlockRef> Index::finish_clears() {
  std::vector<PartitionId> partitions;
  std::vector<PartitionId> with_doomed_rows;
  {
    const ReadTxn txn(*impl_->env);
    Cursor doomed(txn, Table::doomed_partitions);
    for (bool found = doomed.seek(Key(Table::doomed_partitions)); found; found = doomed.next()) {
      partitions.push_back(key_u32(doomed.tail(), 0));
    }
    Cursor all(txn, Table::partitions);
    for (bool found = all.seek(Key(Table::partitions)); found; found = all.next()) {
      if (PartitionRecord::parse(all.value()).doomed_rows > 0) with_doomed_rows.push_back(key_u32(all.tail(), 0));
    }
  }
  std::vector<BlockRef> retired;
  for (const PartitionId id : with_doomed_rows) append(retired, impl_->remove_doomed_rows(id));
  for (const PartitionId id : partitions) append(retired, impl_->remove_doomed_partition(id));
  return retired;
}

}  // namespace tq
