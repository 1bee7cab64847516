#include "core/index/flow_account.hpp"

#include <algorithm>

#include "core/index/clear_parts.hpp"
#include "core/index/tag_map.hpp"
#include "core/index/task_records.hpp"
#include "core/index/tombstones.hpp"

namespace tq::index {
namespace {

constexpr std::int64_t max_version = std::int64_t{1} << 62;

Key flow_key(PartitionId partition) { return Key(Table::flow).u32(partition); }
Key version_key(PartitionId partition, std::int64_t version) {
  return Key(Table::row_versions).u32(partition).u64(static_cast<std::uint64_t>(version));
}

// Where `cursor` stands: how many rows of which version.
std::pair<std::int64_t, std::int64_t> versioned_rows(const Cursor& cursor) {
  const auto version = static_cast<std::int64_t>(key_u64(cursor.tail(), 4));
  const auto rows = static_cast<std::int64_t>(Reader(cursor.value()).number<std::uint64_t>());
  if (version < 0 || version > max_version || rows <= 0 || rows > row_limit) corrupt("rows of a version that cannot be");
  return {version, rows};
}

// A whole number of MessagePack; nullopt when it is something else.
std::optional<std::uint64_t> message_pack_number(std::string_view value) {
  if (value.empty()) return std::nullopt;
  const auto head = static_cast<unsigned char>(value[0]);
  if (head < 0x80 && value.size() == 1) return head;
  std::size_t nbytes = 0;
  if (head >= 0xcc && head <= 0xcf) nbytes = std::size_t{1} << (head - 0xcc);
  if (head >= 0xd0 && head <= 0xd3) nbytes = std::size_t{1} << (head - 0xd0);
  if (nbytes == 0 || value.size() != 1 + nbytes) return std::nullopt;
  std::uint64_t number = 0;
  for (const char byte : value.substr(1)) number = number << 8 | static_cast<unsigned char>(byte);
  const bool negative = head >= 0xd0 && (static_cast<unsigned char>(value[1]) & 0x80) != 0;
  return negative ? std::nullopt : std::optional(number);
}

template <class Row>
void for_each_living_row(const Txn& txn, const Partition& partition, Row&& row) {
  DoomedRows doomed(txn, partition);
  RunCursor runs(txn, partition.id);
  for (bool found = runs.first(); found; found = runs.next()) {
    doomed.for_each_living(runs.run().start, runs.run().count, [&](RowIndex first, std::int64_t count) {
      for (RowIndex at = first; at < first + count; ++at) row(at);
    });
  }
}

}  // namespace

FlowRecord FlowRecord::parse(std::string_view bytes) {
  Reader in(bytes);
  FlowRecord record;
  record.limits = parse_limits(in);
  record.unconsumed = static_cast<std::int64_t>(in.number<std::uint64_t>());
  record.first = static_cast<RowIndex>(in.number<std::uint64_t>());
  if (!may_exist(record.unconsumed) || !may_exist(record.first)) corrupt("limits that count rows that cannot exist");
  const bool has_newest = in.number<std::uint8_t>() != 0;
  const auto newest = static_cast<std::int64_t>(in.number<std::uint64_t>());
  if (has_newest && (newest < 0 || newest > max_version)) corrupt("a version of the weights that cannot be");
  if (has_newest) record.newest = newest;
  record.shed_rows = in.number<std::uint64_t>();
  in.expect_end();
  return record;
}

std::string FlowRecord::encode() const {
  Writer out;
  encode_limits(limits, out);
  out.number(static_cast<std::uint64_t>(unconsumed)).number(static_cast<std::uint64_t>(first));
  out.number(static_cast<std::uint8_t>(newest.has_value())).number(static_cast<std::uint64_t>(newest.value_or(0)));
  return std::string(out.number(shed_rows).view());
}

std::optional<FlowRecord> flow_record(const Txn& txn, const Partition& partition) {
  if (!partition.record.limited) return std::nullopt;
  const auto value = txn.get(flow_key(partition.id));
  if (!value) corrupt("a partition with limits that are not there");
  return FlowRecord::parse(*value);
}

std::optional<std::int64_t> oldest_version(const Txn& txn, PartitionId partition) {
  Cursor cursor(txn, Table::row_versions);
  if (!cursor.seek(version_key(partition, 0)) || key_u32(cursor.tail(), 0) != partition) return std::nullopt;
  return versioned_rows(cursor).first;
}

std::int64_t rows_before_version(const Txn& txn, PartitionId partition, std::int64_t version) {
  std::int64_t rows = 0;
  Cursor cursor(txn, Table::row_versions);
  for (bool found = cursor.seek(version_key(partition, 0)); found && key_u32(cursor.tail(), 0) == partition; found = cursor.next()) {
    const auto [of_version, count] = versioned_rows(cursor);
    if (of_version >= version) break;
    if (count > row_limit - rows) corrupt("more rows of old versions than can exist");
    rows += count;
  }
  return rows;
}

std::optional<std::int64_t> stored_version(std::string_view tags) {
  const auto value = find_tag(tags, "weight_version", ErrorCode::corrupt);
  if (!value) return std::nullopt;
  const auto number = message_pack_number(*value);
  if (!number || *number > static_cast<std::uint64_t>(max_version)) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

std::optional<std::int64_t> weight_version(std::string_view tags) {
  const auto value = find_tag(tags, "weight_version", ErrorCode::invalid);
  if (!value) return std::nullopt;
  const auto version = stored_version(tags);
  if (!version) {
    throw Error(ErrorCode::invalid, "the tag weight_version of a row is no int from 0 to 2**62; where max_version_lag is set "
                                    "the versions of rows are compared by it");
  }
  return version;
}

ConsumedRows::ConsumedRows(const Txn& txn, PartitionId partition, const std::vector<std::string>& consumers)
    : by_all_(!consumers.empty()) {
  for (const std::string& task : consumers) {
    const auto record = stored_task(txn, partition, task);
    if (!record) {
      never_ = true;
      return;
    }
    marks_.emplace_back(txn, marks_of(partition, record->id));
  }
  if (by_all_) return;
  for (const std::uint64_t task : task_ids(txn, partition)) marks_.emplace_back(txn, marks_of(partition, task));
}

bool ConsumedRows::contains(RowIndex row) {
  if (never_) return false;
  const auto marked = [row](BitmapReader& task) { return task.test(row); };
  return by_all_ ? std::all_of(marks_.begin(), marks_.end(), marked) : std::any_of(marks_.begin(), marks_.end(), marked);
}

FlowAccount::FlowAccount(WriteTxn& txn, const Partition& partition)
    : txn_(txn), partition_(partition.id), record_(flow_record(txn, partition)) {}

void FlowAccount::add_rows(std::int64_t count, RowIndex first) {
  if (!record_ || count == 0) return;
  record_->first = std::min(record_->first, first);  // it is lower where rows of other nodes stand before
  if (record_->limits.counts_rows()) record_->unconsumed += count;
}

void FlowAccount::announce_tags(const std::vector<RowUpdate>& updates, RowSpan fresh) {
  if (!record_ || !record_->limits.max_version_lag) return;
  std::optional<ConsumedRows> consumed;
  for (const RowUpdate& update : updates) {
    const std::int64_t version = update.tags.empty() ? -1 : weight_version(update.tags).value_or(-1);
    if (version < 0) continue;  // it keeps the one it has
    record_->newest = std::max(record_->newest.value_or(version), version);
    if (!fresh.contains(update.row)) {
      if (!consumed) consumed.emplace(txn_, partition_, record_->limits.consumers);
      if (consumed->contains(update.row)) continue;
      if (const auto before = version_of(update.row)) versions_[*before] -= 1;
    }
    versions_[version] += 1;
    oldest_announced_ = std::min(oldest_announced_.value_or(version), version);
  }
  info_.reset();  // its cursor stands in chunks that are written next
}

void FlowAccount::remove_rows(std::span<const Segment> living) {
  if (!record_ || !record_->limits.counts_rows()) return;
  ConsumedRows consumed(txn_, partition_, record_->limits.consumers);
  for (const Segment& segment : living) {
    for (RowIndex row = segment.row; row < segment.row + segment.count; ++row) {
      if (!consumed.contains(row)) consume(row);
    }
  }
  info_.reset();
}

void FlowAccount::consume(RowIndex row) {
  record_->unconsumed -= 1;
  if (record_->unconsumed < 0) corrupt("more rows are consumed than there are");
  if (!record_->limits.max_version_lag) return;
  if (const auto version = version_of(row)) versions_[*version] -= 1;
}

std::optional<std::int64_t> FlowAccount::version_of(RowIndex row) {
  if (!info_) info_.emplace(txn_, partition_);
  return info_->seek(row) ? stored_version(info_->tags()) : std::nullopt;
}

void FlowAccount::write_versions() {
  for (const auto& [version, change] : versions_) {
    if (change == 0) continue;
    const Key key = version_key(partition_, version);
    const auto stored = txn_.get(key);
    const auto before = stored ? static_cast<std::int64_t>(Reader(*stored).number<std::uint64_t>()) : 0;
    if (before < 0 || before > row_limit) corrupt("rows of a version that cannot be");
    const std::int64_t rows = before + change;
    if (rows < 0) corrupt("fewer rows of a version than were consumed");
    if (rows == 0) {
      txn_.erase_if_present(key);
    } else {
      Writer out;
      txn_.put(key, out.number(static_cast<std::uint64_t>(rows)).view());
    }
  }
  versions_.clear();
}

std::optional<std::int64_t> FlowAccount::oldest() {
  write_versions();
  return oldest_version(txn_, partition_);
}

void FlowAccount::store() {
  if (!record_) return;
  write_versions();
  txn_.put(flow_key(partition_), record_->encode());
}

FlowMarks::FlowMarks(WriteTxn& txn, const Partition& partition, std::span<const Segment> segments)
    : txn_(txn), partition_(partition), account_(txn, partition) {
  if (!account_ || !account_.record().limits.counts_rows()) return;
  ConsumedRows consumed(txn, partition.id, account_.record().limits.consumers);
  for (const Segment& segment : living_rows(txn, partition, segments)) {
    for (RowIndex row = segment.row; row < segment.row + segment.count; ++row) {
      if (!consumed.contains(row)) counted_.push_back(row);
    }
  }
}

void FlowMarks::done() {
  if (counted_.empty()) return;
  ConsumedRows consumed(txn_, partition_.id, account_.record().limits.consumers);
  for (const RowIndex row : counted_) {
    if (consumed.contains(row)) account_.consume(row);
  }
  account_.store();
}

FlowCount count_flow(const Txn& txn, const Partition& partition, const PartitionLimits& limits) {
  FlowCount count;
  if (!limits.counts_rows()) return count;
  ConsumedRows consumed(txn, partition.id, limits.consumers);
  RowInfoReader info(txn, partition.id);
  const bool by_version = limits.max_version_lag.has_value();
  for_each_living_row(txn, partition, [&](RowIndex row) {
    const std::int64_t version = by_version && info.seek(row) ? stored_version(info.tags()).value_or(-1) : -1;
    if (version >= 0) count.newest = std::max(count.newest.value_or(version), version);
    if (consumed.contains(row)) return;
    count.unconsumed += 1;
    if (version >= 0) count.versions[version] += 1;
  });
  return count;
}

void recount_flow(WriteTxn& txn, const Partition& partition) {
  auto record = flow_record(txn, partition);
  if (!record) return;
  const FlowCount count = count_flow(txn, partition, record->limits);
  record->unconsumed = count.unconsumed;
  record->first = 0;
  if (!record->newest) record->newest = count.newest;  // else it was put or said, and may be lower by intent
  {
    Cursor cursor(txn, Table::row_versions);
    for (bool found = cursor.seek(version_key(partition.id, 0)); found && key_u32(cursor.tail(), 0) == partition.id;
         found = cursor.next()) {
      cursor.erase();
    }
  }
  Writer out;
  for (const auto& [version, rows] : count.versions) {
    out.clear();
    txn.put(version_key(partition.id, version), out.number(static_cast<std::uint64_t>(rows)).view());
  }
  txn.put(flow_key(partition.id), record->encode());
}

void apply_rules(WriteTxn& txn, Partition& partition, const std::vector<std::pair<std::string, LimitRule>>& rules) {
  FlowRecord record;
  if (const auto before = flow_record(txn, partition)) record = *before;
  record.limits = limits_for(rules, partition.record.name);
  if (!record.limits.max_version_lag) record.newest.reset();
  if (!record.limits.any() && !partition.record.limited) return;
  partition.record.limited = true;
  txn.put(flow_key(partition.id), record.encode());
  recount_flow(txn, partition);
  if (record.limits.any()) return;
  partition.record.limited = false;
  txn.erase(flow_key(partition.id));
}

}  // namespace tq::index
