// Names of partitions and fields, and the integers that stand for them in keys.
#pragma once

#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/index/records.hpp"
#include "core/index/txn.hpp"
#include "core/types.hpp"

namespace tq::index {

// Throws Error(invalid): names are 1 to `max_name_nbytes` bytes, of any content.
void check_name(std::string_view name, const char* what);

struct Partition {
  PartitionId id = 0;
  PartitionRecord record;
};

// Partition names come and go (a cleared partition's id dies with it), so a name is looked up in every transaction.
std::optional<Partition> partition_by_name(const Txn& txn, std::string_view name);
std::optional<PartitionRecord> partition_by_id(const Txn& txn, PartitionId id);
Partition partition_to_write(WriteTxn& txn, const std::string& name);
// Stores the record with its version bumped.
void store_partition(WriteTxn& txn, Partition& partition);

// Field names live as long as the session, so what a committed transaction said about one is remembered.
class FieldNames {
 public:
  std::optional<FieldId> id(const Txn& txn, const std::string& name);
  std::string name(const Txn& txn, FieldId id);

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, FieldId> ids_;
  std::unordered_map<FieldId, std::string> names_;
};

// The field's id, made when the session meets the name first. Not remembered: the transaction may abort.
FieldId ensure_field(WriteTxn& txn, FieldNames& names, const std::string& name);

// Which (partition, field) pairs are on record as "the partition ever had this field".
class PartitionFields {
 public:
  // Records the pairs that are missing. `remember` after the commit.
  void add(WriteTxn& txn, PartitionId partition, const std::vector<FieldId>& fields);
  void remember(PartitionId partition, const std::vector<FieldId>& fields);

 private:
  static constexpr std::size_t max_pairs = 1u << 14;
  std::mutex mutex_;
  std::set<std::pair<PartitionId, FieldId>> known_;
};
bool partition_had_field(const Txn& txn, PartitionId partition, FieldId field);

}  // namespace tq::index
