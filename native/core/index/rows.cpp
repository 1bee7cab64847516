// Partitions, and what rows are called: keys, tags, listings.
#include "core/index/flow_account.hpp"
#include "core/index/impl.hpp"
#include "core/index/tag_map.hpp"

namespace tq {

using namespace index;

std::vector<std::string> Index::partitions() {
  const ReadTxn txn(*impl_->env);
  std::vector<std::string> names;
  Cursor cursor(txn, Table::partitions);
  for (bool found = cursor.seek(Key(Table::partitions)); found; found = cursor.next()) {
    names.push_back(PartitionRecord::parse(cursor.value()).name);
  }
  return names;
}

PartitionId Index::ensure_partition(const std::string& name) {
  return impl_->write(Room::put, [&](WriteTxn& txn) { return partition_to_write(txn, name).id; });
}

std::optional<PartitionId> Index::find_partition(const std::string& name) {
  const ReadTxn txn(*impl_->env);
  const auto partition = partition_by_name(txn, name);
  return partition ? std::optional(partition->id) : std::nullopt;
}

std::uint64_t Index::partition_version(PartitionId id) {
  const ReadTxn txn(*impl_->env);
  const auto record = partition_by_id(txn, id);
  return record ? record->version : 0;
}

RowListing Index::list_rows(const std::string& name) {
  const ReadTxn txn(*impl_->env);
  RowListing listing;
  const auto partition = partition_by_name(txn, name);
  if (!partition) return listing;
  listing.partition_found = true;
  const auto n_rows = static_cast<std::size_t>(std::min(partition->record.rows, stored_counters(txn).rows_made()));
  listing.indexes.reserve(n_rows);
  listing.keys.reserve(n_rows);
  listing.tags.reserve(n_rows);
  DoomedRows doomed(txn, *partition);
  RowInfoReader info(txn, partition->id);
  RunCursor runs(txn, partition->id);
  for (bool found = runs.first(); found; found = runs.next()) {
    doomed.for_each_living(runs.run().start, runs.run().count, [&](RowIndex first, std::int64_t count) {
      for (RowIndex row = first; row < first + count; ++row) {
        info.seek(row);
        listing.indexes.push_back(row);
        if (info.key().empty()) {
          listing.keys.emplace_back();
        } else {
          listing.keys.emplace_back(info.key());
        }
        listing.tags.emplace_back(info.tags());
      }
    });
  }
  return listing;
}

RowListing Index::describe_rows(const std::string& name, const std::vector<RowIndex>& indexes) {
  const ReadTxn txn(*impl_->env);
  RowListing listing;
  listing.indexes = indexes;
  listing.keys.resize(indexes.size());
  listing.tags.resize(indexes.size());
  const auto partition = partition_by_name(txn, name);
  if (!partition) return listing;
  listing.partition_found = true;
  DoomedRows doomed(txn, *partition);
  RowInfoReader info(txn, partition->id);
  for (std::size_t i = 0; i < indexes.size(); ++i) {
    // Keys and tags go with their row in one transaction, so what is found belongs to a row that exists, or to a doomed one.
    if (indexes[i] < 0 || !info.seek(indexes[i]) || doomed.contains(indexes[i])) continue;
    if (!info.key().empty()) listing.keys[i] = info.key();
    listing.tags[i] = info.tags();
  }
  return listing;
}

std::vector<RowIndex> Index::find_keys(const std::string& name, const std::vector<std::string>& keys, bool* partition_found) {
  const HashedKeys hashed(impl_->hasher, keys);
  const ReadTxn txn(*impl_->env);
  const auto partition = partition_by_name(txn, name);
  if (partition_found != nullptr) *partition_found = partition.has_value();
  if (!partition) return std::vector<RowIndex>(keys.size(), -1);
  DoomedRows doomed(txn, *partition);
  return look_up_keys(txn, partition->id, hashed, doomed);
}

std::uint64_t Index::merge_tags(const std::string& name, const std::vector<RowIndex>& indexes, const std::vector<std::string>& tags) {
  if (tags.size() != indexes.size()) {
    throw Error(ErrorCode::invalid,
                std::to_string(indexes.size()) + " rows were given " + std::to_string(tags.size()) + " tag maps");
  }
  std::vector<std::size_t> order(indexes.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return indexes[a] < indexes[b]; });
  return impl_->write_asked(Room::put, [&](WriteTxn& txn) -> std::uint64_t {
    auto partition = partition_by_name(txn, name);
    if (!partition && indexes.empty()) return 0;
    std::vector<RowIndex> missing = indexes;
    if (partition) missing = missing_rows(txn, *partition, indexes);
    if (!missing.empty()) throw stale_rows(std::move(missing), "tags");
    std::vector<std::string> merged(order.size());  // a row that stands several times gets its maps in the order of the call
    std::vector<RowUpdate> updates;
    for (const std::size_t i : order) {
      if (!updates.empty() && updates.back().row == indexes[i]) {
        std::string& both = merged[updates.size() - 1];
        both = merge_tag_maps(merge_tag_maps({}, both), tags[i]);
      } else {
        merged[updates.size()] = tags[i];
        updates.push_back({indexes[i], {}, {}, false});
      }
    }
    for (std::size_t i = 0; i < updates.size(); ++i) updates[i].tags = merged[i];
    std::erase_if(updates, [](const RowUpdate& update) { return update.tags.empty(); });
    FlowAccount flow(txn, *partition);
    flow.announce_tags(updates, {});
    flow.store();
    RowInfoWriter(txn, partition->id).apply(updates);
    store_partition(txn, *partition);
    return partition->record.version;
  }, [](std::uint64_t version) {
    RequestRecord record;
    record.partition_version = version;
    return std::optional(std::move(record));
  });
}

}  // namespace tq
