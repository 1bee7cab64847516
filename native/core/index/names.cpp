#include "core/index/names.hpp"

#include "core/index/flow_account.hpp"

namespace tq::index {
namespace {

std::string id_value(std::uint32_t id) {
  Writer out;
  return std::string(out.number(id).view());
}

std::uint32_t take_id(std::uint64_t& next, std::uint32_t last, const char* what) {
  if (next > last) throw Error(ErrorCode::index_full, std::string("the session has used up its ") + what + " numbers");
  return static_cast<std::uint32_t>(next++);
}

}  // namespace

void check_name(std::string_view name, const char* what) {
  if (!name.empty() && name.size() <= max_name_nbytes) return;
  if (name.empty()) throw Error(ErrorCode::invalid, std::string("the name of a ") + what + " is empty");
  throw Error(ErrorCode::invalid, std::string("the name of a ") + what + " has " + std::to_string(name.size()) +
                                      " bytes; at most " + std::to_string(max_name_nbytes) + " are allowed");
}

std::optional<Partition> partition_by_name(const Txn& txn, std::string_view name) {
  if (name.empty() || name.size() > max_name_nbytes) return std::nullopt;
  const auto value = txn.get(Key(Table::partition_names).name(name));
  if (!value) return std::nullopt;
  const auto id = Reader(*value).number<std::uint32_t>();
  auto record = partition_by_id(txn, id);
  if (!record) corrupt("a partition's name without its record");
  return Partition{id, std::move(*record)};
}

std::optional<PartitionRecord> partition_by_id(const Txn& txn, PartitionId id) {
  const auto value = txn.get(Key(Table::partitions).u32(id));
  if (!value) return std::nullopt;
  return PartitionRecord::parse(*value);
}

Partition partition_to_write(WriteTxn& txn, const std::string& name) {
  check_name(name, "partition");
  if (auto found = partition_by_name(txn, name)) return std::move(*found);
  Partition made;
  made.id = take_id(txn.counters.next_partition, ~PartitionId{0}, "partition");
  if (txn.get(Key(Table::partitions).u32(made.id))) corrupt("a partition beyond the last one that was given out");
  made.record.name = name;
  // No version that an earlier partition of this name had: a waiter whose wake-ups died with the clearing and the making
  // process tells the two apart by it.
  made.record.version = std::uint64_t{made.id} << 32;
  txn.counters.partitions += 1;
  txn.put(Key(Table::partition_names).name(name), id_value(made.id));
  apply_rules(txn, made, read_rules(txn));
  store_partition(txn, made);
  return made;
}

void store_partition(WriteTxn& txn, Partition& partition) {
  partition.record.version += 1;
  txn.put(Key(Table::partitions).u32(partition.id), partition.record.encode());
}

std::optional<FieldId> FieldNames::id(const Txn& txn, const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = ids_.find(name); at != ids_.end()) return at->second;
  }
  if (name.empty() || name.size() > max_name_nbytes) return std::nullopt;
  const auto value = txn.get(Key(Table::field_names).name(name));
  if (!value) return std::nullopt;
  const auto id = Reader(*value).number<std::uint32_t>();
  if (id > max_field_id) corrupt("a field with an impossible number");
  // A write transaction looks each name up before it makes it, once, so what is found here was committed before.
  const std::lock_guard lock(mutex_);
  ids_.emplace(name, id);
  names_.emplace(id, name);
  return id;
}

std::string FieldNames::name(const Txn& txn, FieldId id) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = names_.find(id); at != names_.end()) return at->second;
  }
  const auto value = txn.get(Key(Table::fields).u32(id));
  if (!value) corrupt("a field without a name");
  std::string name(*value);
  const std::lock_guard lock(mutex_);
  names_.emplace(id, name);
  ids_.emplace(name, id);
  return name;
}

FieldId ensure_field(WriteTxn& txn, FieldNames& names, const std::string& name) {
  if (const auto known = names.id(txn, name)) return *known;
  if (txn.counters.next_field > max_fields) {
    throw Error(ErrorCode::index_full, "the session has " + std::to_string(max_fields) + " names of fields, as many as it may, and '" +
                                           name.substr(0, 60) + "' would be another; they live as long as the session does: what "
                                           "changes from step to step belongs into keys, tags or names of partitions");
  }
  const FieldId id = take_id(txn.counters.next_field, max_field_id, "field");
  if (txn.insert(Key(Table::fields).u32(id), name)) corrupt("a field beyond the last one that was given out");
  txn.put(Key(Table::field_names).name(name), id_value(id));
  return id;
}

void PartitionFields::add(WriteTxn& txn, PartitionId partition, const std::vector<FieldId>& fields) {
  std::vector<FieldId> missing;
  {
    const std::lock_guard lock(mutex_);
    for (const FieldId field : fields) {
      if (!known_.contains({partition, field})) missing.push_back(field);
    }
  }
  for (const FieldId field : missing) {
    if (!partition_had_field(txn, partition, field)) txn.put(Key(Table::partition_fields).u32(partition).u32(field), {});
  }
}

void PartitionFields::remember(PartitionId partition, const std::vector<FieldId>& fields) {
  const std::lock_guard lock(mutex_);
  if (known_.size() > max_pairs) known_.clear();
  for (const FieldId field : fields) known_.emplace(partition, field);
}

bool partition_had_field(const Txn& txn, PartitionId partition, FieldId field) {
  return txn.get(Key(Table::partition_fields).u32(partition).u32(field)).has_value();
}

}  // namespace tq::index
