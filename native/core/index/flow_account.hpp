// What limits need to know of a partition, kept by the transactions that change it: how many of its rows nobody has consumed
// yet, and how many of them there are of each version of the weights. Partitions without limits have none of this: their
// record says so, and that is all that a put looks at.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/index/bitmap.hpp"
#include "core/index/limit_rules.hpp"
#include "core/index/names.hpp"
#include "core/index/partition_limits.hpp"
#include "core/index/rowinfo.hpp"
#include "core/index/runs.hpp"
#include "core/index/txn.hpp"

namespace tq::index {

// Under (partition): the limits | i64 unconsumed | i64 first | u8 whether there is a newest version | i64 it | u64 shed rows
struct FlowRecord {
  PartitionLimits limits;
  std::int64_t unconsumed = 0;          // rows that `limits` count
  RowIndex first = 0;                   // every row before it was given to some task, or is gone
  std::optional<std::int64_t> newest;   // version of the weights
  std::uint64_t shed_rows = 0;

  static FlowRecord parse(std::string_view bytes);
  std::string encode() const;
};

// nullopt: the partition has no limits.
std::optional<FlowRecord> flow_record(const Txn& txn, const Partition& partition);
// The lowest version of a row that counts.
std::optional<std::int64_t> oldest_version(const Txn& txn, PartitionId partition);
// Rows that count and have a version below `version`.
std::int64_t rows_before_version(const Txn& txn, PartitionId partition, std::int64_t version);

// The tag "weight_version" of a row; nullopt: it has none. Error(invalid) when it is no whole number, or negative.
std::optional<std::int64_t> weight_version(std::string_view tags);
// The same of tags that are there already: what is no version counts as none.
std::optional<std::int64_t> stored_version(std::string_view tags);

// The rows that no longer count: consumed by all of `consumers`, or, if there are none, by any task.
class ConsumedRows {
 public:
  ConsumedRows(const Txn& txn, PartitionId partition, const std::vector<std::string>& consumers);
  bool contains(RowIndex row);

 private:
  std::vector<BitmapReader> marks_;
  bool by_all_;
  bool never_ = false;  // a consumer has not consumed anything yet
};

// The account of one partition within one transaction. Does nothing when the partition has no limits.
class FlowAccount {
 public:
  FlowAccount(WriteTxn& txn, const Partition& partition);
  explicit operator bool() const { return record_.has_value(); }
  FlowRecord& record() { return *record_; }

  // `count` new rows that are not consumed, `first` the lowest of them; their tags are announced apart.
  void add_rows(std::int64_t count, RowIndex first);
  // To be called before the tags are written. Rows of `fresh` are new and nobody had their indexes before.
  void announce_tags(const std::vector<RowUpdate>& updates, RowSpan fresh);
  // Rows that exist, ascending; to be called before their records go.
  void remove_rows(std::span<const Segment> living);
  // The row, which counted, is consumed.
  void consume(RowIndex row);
  // The oldest version that was announced here, of rows that count.
  std::optional<std::int64_t> oldest_announced() const { return oldest_announced_; }
  std::optional<std::int64_t> oldest();  // of all rows that count
  void store();

 private:
  std::optional<std::int64_t> version_of(RowIndex row);
  void write_versions();

  WriteTxn& txn_;
  PartitionId partition_;
  std::optional<FlowRecord> record_;
  std::map<std::int64_t, std::int64_t> versions_;  // changes that are not yet written
  std::optional<RowInfoReader> info_;
  std::optional<std::int64_t> oldest_announced_;
};

// Around a change of a task's marks: which rows count is looked at before, and again in `done`.
class FlowMarks {
 public:
  FlowMarks(WriteTxn& txn, const Partition& partition, std::span<const Segment> segments);
  void done();

 private:
  WriteTxn& txn_;
  const Partition& partition_;
  FlowAccount account_;
  std::vector<RowIndex> counted_;
};

// By a look at every row, which is what the account must come to.
struct FlowCount {
  std::int64_t unconsumed = 0;
  std::map<std::int64_t, std::int64_t> versions;  // of the rows that count
  std::optional<std::int64_t> newest;             // of all rows
};
FlowCount count_flow(const Txn& txn, const Partition& partition, const PartitionLimits& limits);

// Counts anew, for instance after a task was reset. Looks at every row.
void recount_flow(WriteTxn& txn, const Partition& partition);
// Gives the partition what the rules say, and counts anew. The caller stores the partition.
void apply_rules(WriteTxn& txn, Partition& partition, const std::vector<std::pair<std::string, LimitRule>>& rules);

}  // namespace tq::index
