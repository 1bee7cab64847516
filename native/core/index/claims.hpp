// Claims: rows that a task gave to somebody who has yet to say whether it is done with them.
//
// One record a claim. It stands until it is acknowledged or given back, the task reset or the partition cleared; one that is
// over (its time ran out, or its process died) counts for nothing from that moment on, whether or not somebody has removed it
// yet. So a death needs no message: whoever looks next sees it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/claim_judge.hpp"
#include "core/index/runs.hpp"
#include "core/index/txn.hpp"
#include "core/types.hpp"

namespace tq::index {

// Record: u64 owner | u64 deadline | n x { varint gap to the end of the stretch before | varint rows }
struct ClaimRecord {
  OwnerId owner = 0;
  std::int64_t deadline_ns = 0;
  std::vector<Segment> rows;  // ascending

  static ClaimRecord parse(std::string_view bytes, const Counters& counters);  // of the rows that were ever made
  std::string encode() const;
};

inline Key claims_of(PartitionId partition, std::uint64_t task) { return Key(Table::claims).u32(partition).u64(task); }

// The judge's answers during one call: the time of its beginning, and each owner asked about once (a system call or two).
class Verdicts {
 public:
  explicit Verdicts(const ClaimJudge& judge) : judge_(judge), now_ns_(judge.now_ns()) {}
  std::int64_t now_ns() const { return now_ns_; }
  bool is_dead(OwnerId owner);
  bool is_over(OwnerId owner, std::int64_t deadline_ns) { return deadline_ns <= now_ns_ || is_dead(owner); }

 private:
  const ClaimJudge& judge_;
  std::int64_t now_ns_;
  std::map<OwnerId, bool> dead_;
};

// The rows of a task that somebody has claimed and whose claim is not over.
class ClaimedRows {
 public:
  ClaimedRows(const Txn& txn, PartitionId partition, std::uint64_t task, Verdicts& verdicts);

  // Cheap for rows asked in ascending order.
  bool contains(RowIndex row);
  const std::vector<Segment>& segments() const { return segments_; }
  // When the first of these claims runs out.
  std::optional<std::int64_t> next_deadline_ns() const { return next_deadline_ns_; }

 private:
  std::vector<Segment> segments_;  // ascending
  std::size_t at_ = 0;
  std::optional<std::int64_t> next_deadline_ns_;
};

// Removes every claim of a task.
void erase_claims(WriteTxn& txn, PartitionId partition, std::uint64_t task);

}  // namespace tq::index
