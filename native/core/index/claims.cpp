#include "core/index/claims.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "core/index/flow_account.hpp"
#include "core/index/impl.hpp"
#include "core/index/task_records.hpp"
#include "core/pause.hpp"

namespace tq {

namespace index {

ClaimRecord ClaimRecord::parse(std::string_view bytes, const Counters& counters) {
  Reader in(bytes);
  ClaimRecord record;
  record.owner = in.number<std::uint64_t>();
  record.deadline_ns = static_cast<std::int64_t>(in.number<std::uint64_t>());
  if (record.deadline_ns < 0) corrupt("a claim that ended before the clock began");
  const auto limit = static_cast<std::uint64_t>(counters.row_end());
  auto left = static_cast<std::uint64_t>(counters.rows_made());
  std::uint64_t row = 0;
  while (in.left() > 0) {
    const std::uint64_t gap = in.varint();
    const std::uint64_t count = in.varint();
    if (count == 0 || gap > limit - row || count > limit - row - gap || count > left) corrupt("a claim on rows that cannot exist");
    left -= count;
    record.rows.push_back({static_cast<RowIndex>(row + gap), static_cast<std::int64_t>(count), 0, 0});
    row += gap + count;
  }
  return record;
}

std::string ClaimRecord::encode() const {
  Writer out;
  out.number(owner).number(static_cast<std::uint64_t>(deadline_ns));
  RowIndex end = 0;
  for (std::size_t i = 0; i < rows.size();) {
    const RowIndex start = rows[i].row;
    RowIndex stop = start;
    for (; i < rows.size() && rows[i].row == stop; ++i) stop += rows[i].count;
    out.varint(static_cast<std::uint64_t>(start - end)).varint(static_cast<std::uint64_t>(stop - start));
    end = stop;
  }
  return std::string(out.view());
}

bool Verdicts::is_dead(OwnerId owner) {
  const auto [at, fresh] = dead_.try_emplace(owner, false);
  if (fresh) at->second = judge_.is_dead(owner);
  return at->second;
}

ClaimedRows::ClaimedRows(const Txn& txn, PartitionId partition, std::uint64_t task, Verdicts& verdicts) {
  Cursor cursor(txn, Table::claims);
  const Key first = claims_of(partition, task);
  std::optional<Counters> counters;
  for (bool found = cursor.seek(first); found && cursor.tail().substr(0, 12) == first.view().substr(1); found = cursor.next()) {
    if (!counters) counters = stored_counters(txn);
    const ClaimRecord claim = ClaimRecord::parse(cursor.value(), *counters);
    if (claim.rows.empty() || verdicts.is_over(claim.owner, claim.deadline_ns)) continue;
    segments_.insert(segments_.end(), claim.rows.begin(), claim.rows.end());
    next_deadline_ns_ = next_deadline_ns_ ? std::min(*next_deadline_ns_, claim.deadline_ns) : claim.deadline_ns;
  }
  std::sort(segments_.begin(), segments_.end(), [](const Segment& a, const Segment& b) { return a.row < b.row; });
}

bool ClaimedRows::contains(RowIndex row) {
  if (at_ > 0 && row < segments_[at_ - 1].row + segments_[at_ - 1].count) at_ = 0;
  while (at_ < segments_.size() && segments_[at_].row + segments_[at_].count <= row) ++at_;
  return at_ < segments_.size() && segments_[at_].row <= row;
}

void erase_claims(WriteTxn& txn, PartitionId partition, std::uint64_t task) {
  Cursor cursor(txn, Table::claims);
  const Key first = claims_of(partition, task);
  for (bool found = cursor.seek(first); found && cursor.tail().substr(0, 12) == first.view().substr(1); found = cursor.next()) {
    cursor.erase();
  }
}

namespace {

// (partition, task, fencing): the key of a claim.
using ClaimId = std::tuple<PartitionId, std::uint64_t, std::uint64_t>;

Key key_of(const ClaimId& id) { return claims_of(std::get<0>(id), std::get<1>(id)).u64(std::get<2>(id)); }

// A lease longer than this never ends, and sums with the clock do not overflow.
constexpr std::int64_t longest_lease_ns = std::int64_t{1} << 61;

std::int64_t deadline_after(std::int64_t now_ns, std::int64_t lease_ns) {
  if (lease_ns <= 0) throw Error(ErrorCode::invalid, "the lease of a claim must be longer than no time at all");
  return now_ns + std::min(lease_ns, longest_lease_ns);
}

Error claim_over(const std::string& partition, const std::string& task, std::uint64_t fencing, const std::string& why) {
  return Error(ErrorCode::claim_over, "claim " + std::to_string(fencing) + " of task '" + task + "' on partition '" + partition +
                                          "' is over: " + why + "; its rows are, or will be, offered again: claim anew");
}

std::string seconds(std::int64_t ns) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f s", static_cast<double>(ns) * 1e-9);
  return text;
}

// A claim that somebody acts upon, in the transaction that does so.
struct Found {
  Partition partition;
  std::uint64_t task = 0;
  ClaimRecord record;
  Key key() const { return claims_of(partition.id, task); }
};

// Error(claim_over) when it is: the number decides, whoever comes with it.
Found find_claim(const Txn& txn, const std::string& name, const std::string& task, std::uint64_t fencing, Verdicts& verdicts) {
  auto partition = partition_by_name(txn, name);
  if (!partition) throw claim_over(name, task, fencing, "the partition was cleared");
  const auto record = task_record(txn, partition->id, task);
  const auto value = record ? txn.get(claims_of(partition->id, record->id).u64(fencing)) : std::nullopt;
  if (!value) {
    throw claim_over(name, task, fencing,
                     "it was acknowledged or given back, it ran out, its process died, or the task was reset");
  }
  ClaimRecord claim = ClaimRecord::parse(*value, stored_counters(txn));
  if (claim.deadline_ns <= verdicts.now_ns()) {
    throw claim_over(name, task, fencing, "it ran out " + seconds(verdicts.now_ns() - claim.deadline_ns) + " ago");
  }
  if (verdicts.is_dead(claim.owner)) throw claim_over(name, task, fencing, "the process that claimed it is gone");
  return Found{std::move(*partition), record->id, std::move(claim)};
}

}  // namespace

}  // namespace index

using namespace index;

std::optional<ClaimGrant> Index::claim(const TaskChoice& choice, OwnerId owner, std::int64_t lease_ns) {
  ClaimGrant grant;
  const bool done = impl_->take_rows(choice, [&](WriteTxn& txn, const Partition& partition, std::uint64_t task,
                                                 std::span<const Segment> rows, Verdicts& verdicts) {
    grant = {txn.counters.next_claim++, deadline_after(verdicts.now_ns(), lease_ns)};
    const ClaimRecord record{owner, grant.deadline_ns, {rows.begin(), rows.end()}};
    txn.put(claims_of(partition.id, task).u64(grant.fencing), record.encode());
    TQ_PAUSE("index.claim.before_commit");
  }, &grant);
  if (!done) return std::nullopt;
  return grant;
}

void Index::finish_claim(const std::string& name, const std::string& task, std::uint64_t fencing, bool consumed) {
  impl_->write_asked(Room::release, [&](WriteTxn& txn) {
    Verdicts verdicts(impl_->judge);
    Found claim = find_claim(txn, name, task, fencing, verdicts);
    if (consumed) {
      // Also of rows that were cleared meanwhile: one that is made again is the sample that it was.
      FlowMarks flow(txn, claim.partition, claim.record.rows);
      set_rows(txn, marks_of(claim.partition.id, claim.task), claim.record.rows);
      flow.done();
    }
    txn.erase(claim.key().u64(fencing));
    store_partition(txn, claim.partition);
    TQ_PAUSE("index.finish_claim.before_commit");
    return true;
  });
}

std::int64_t Index::extend_claim(const std::string& name, const std::string& task, std::uint64_t fencing, OwnerId owner,
                                 std::int64_t lease_ns) {
  return impl_->write_asked(Room::release, [&](WriteTxn& txn) {
    Verdicts verdicts(impl_->judge);
    Found claim = find_claim(txn, name, task, fencing, verdicts);
    claim.record.owner = owner;
    claim.record.deadline_ns = deadline_after(verdicts.now_ns(), lease_ns);
    txn.put(claim.key().u64(fencing), claim.record.encode());
    return claim.record.deadline_ns;
  }, [&](std::int64_t deadline_ns) {
    RequestRecord record;
    record.kind = RequestKind::claim;
    record.fencing = fencing;
    record.deadline_ns = deadline_ns;
    return std::optional(std::move(record));
  });
}

std::vector<std::string> Index::drop_claims(std::optional<OwnerId> leaving) {
  Verdicts verdicts(impl_->judge);
  const auto is_over = [&](std::string_view value) {
    Reader in(value);
    const auto owner = in.number<std::uint64_t>();
    const auto deadline_ns = static_cast<std::int64_t>(in.number<std::uint64_t>());
    return owner == leaving || verdicts.is_over(owner, deadline_ns);
  };
  std::vector<ClaimId> over;
  {
    const ReadTxn txn(*impl_->env);
    Cursor cursor(txn, Table::claims);
    for (bool found = cursor.seek(Key(Table::claims)); found; found = cursor.next()) {
      if (is_over(cursor.value())) over.emplace_back(key_u32(cursor.tail(), 0), key_u64(cursor.tail(), 4), key_u64(cursor.tail(), 12));
    }
  }
  std::set<std::string> partitions;
  for (std::size_t at = 0; at < over.size();) {
    std::size_t end = at;
    std::set<PartitionId> changed;
    const std::set<std::string> names = impl_->write(Room::release, [&](WriteTxn& txn) {
      changed.clear();
      end = std::min(over.size(), at + clear_units(txn));
      for (std::size_t i = at; i < end; ++i) {
        // It may have been finished meanwhile, or its time extended.
        const auto value = txn.get(key_of(over[i]));
        if (!value || !is_over(*value)) continue;
        txn.erase(key_of(over[i]));
        changed.insert(std::get<0>(over[i]));
      }
      std::set<std::string> batch;
      for (const PartitionId id : changed) {
        auto record = partition_by_id(txn, id);
        if (!record) continue;  // cleared, its records not yet all removed
        batch.insert(record->name);
        Partition partition{id, std::move(*record)};
        store_partition(txn, partition);
      }
      return batch;
    });
    partitions.insert(names.begin(), names.end());
    at = end;
  }
  return {partitions.begin(), partitions.end()};
}

}  // namespace tq
