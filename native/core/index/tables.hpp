// The tables of the index. A table is a one-byte prefix inside a named database of LMDB: tables that one small put
// touches together share a database and so, mostly, a page (docs/decisions/005-index.md has the measurement).
#pragma once

#include <cstdint>
#include <string_view>

#include "core/index/bytes.hpp"

namespace tq::index {

enum class Table : std::uint8_t {
  format,             // "" -> magic, version, limits; written once
  counters,           // "" -> Counters
  extents_by_offset,  // offset -> nbytes: the free spans, never adjacent to one another
  extents_by_size,    // (nbytes, offset) -> nothing: the same spans for best fit
  free_slots,         // slot -> nothing
  pending,            // (owner, offset) -> nbytes, ref
  retired,            // ref -> RetiredRecord
  partition_names,    // name -> id
  partitions,         // id -> PartitionRecord
  field_names,        // name -> id
  fields,             // id -> name
  partition_fields,   // (partition, field) -> nothing: the partition ever had the field
  doomed_partitions,  // id -> name: cleared, its records not yet all removed
  doomed_rows,        // (partition, row chunk) -> bitmap: cleared rows whose records are not yet removed
  tasks,              // (partition, name) -> TaskRecord
  consumed,           // (partition, task, row chunk) -> bitmap
  claims,             // (partition, task, fencing number) -> ClaimRecord
  blocks,             // ref -> BlockRecord
  runs,               // (partition, first row) -> Run
  rowinfo,            // (partition, first row) -> keys and tags of a chunk of rows
  key_rows,           // (partition, hash of the key) -> rows
  spill_by_offset,    // as extents_by_offset and extents_by_size, of the spill file: best fit in one region must not walk
  spill_by_size,      //   over the free spans of the other
  limit_rules,        // name or pattern -> LimitRule
  flow,               // partition -> FlowRecord; only of partitions that have limits
  row_versions,       // (partition, version of the weights) -> how many rows that limits count have it
  requests,           // 16 bytes of a caller -> what was done under them: see requests.hpp
  request_order,      // number -> time, those bytes: oldest first
};

// Not one more without need: every transaction looks up by name those that it touches, and each name makes that dearer.
enum class Database : std::uint8_t { space, names, blocks, runs, rowinfo, key_rows };
inline constexpr const char* database_names[] = {"space", "names", "blocks", "runs", "rowinfo", "key_rows"};
inline constexpr unsigned n_databases = 6;

constexpr Database database_of(Table table) {
  switch (table) {
    case Table::format:
    case Table::counters:
    case Table::extents_by_offset:
    case Table::extents_by_size:
    case Table::spill_by_offset:
    case Table::spill_by_size:
    case Table::free_slots:
    case Table::pending:
    case Table::retired:
    case Table::partitions:
    case Table::flow:
    case Table::row_versions:
      return Database::space;
    case Table::blocks:
      return Database::blocks;
    case Table::runs:
      return Database::runs;
    case Table::rowinfo:
      return Database::rowinfo;
    case Table::key_rows:
    case Table::requests:  // random keys, as those are
    case Table::request_order:
      return Database::key_rows;
    default:
      return Database::names;
  }
}

// Names of partitions, fields and tasks are LMDB keys, which end at 511 bytes (user keys are hashed and are not).
inline constexpr std::size_t max_name_nbytes = 400;

// A key: the table's prefix, then big-endian numbers and, last, a name.
class Key {
 public:
  explicit Key(Table table) : table_(table) { raw_[size_++] = static_cast<char>(table); }
  Key& u32(std::uint32_t value) { return big_endian(value, 4); }
  Key& u64(std::uint64_t value) { return big_endian(value, 8); }
  Key& row(std::int64_t value) { return u64(static_cast<std::uint64_t>(value)); }
  Key& name(std::string_view value) {
    if (value.size() > max_name_nbytes) corrupt("a name longer than a key may be");
    std::memcpy(raw_ + size_, value.data(), value.size());
    size_ += value.size();
    return *this;
  }
  Table table() const { return table_; }
  std::string_view view() const { return {raw_, size_}; }

 private:
  Key& big_endian(std::uint64_t value, unsigned nbytes) {
    for (unsigned i = 0; i < nbytes; ++i) raw_[size_++] = static_cast<char>(value >> (8 * (nbytes - 1 - i)));
    return *this;
  }

  Table table_;
  char raw_[32 + max_name_nbytes];  // NOLINT: filled up to size_
  std::size_t size_ = 0;
};

// Numbers back out of a key's tail (after the prefix).
inline std::uint64_t key_number(std::string_view tail, std::size_t at, unsigned nbytes) {
  if (tail.size() < at + nbytes) corrupt("a key that is too short");
  std::uint64_t value = 0;
  for (unsigned i = 0; i < nbytes; ++i) value = value << 8 | static_cast<unsigned char>(tail[at + i]);
  return value;
}
inline std::uint32_t key_u32(std::string_view tail, std::size_t at) {
  return static_cast<std::uint32_t>(key_number(tail, at, 4));
}
inline std::uint64_t key_u64(std::string_view tail, std::size_t at) { return key_number(tail, at, 8); }
inline std::int64_t key_row(std::string_view tail, std::size_t at) {
  return static_cast<std::int64_t>(key_number(tail, at, 8));
}

}  // namespace tq::index
