#include "core/index/shed.hpp"

#include <algorithm>
#include <deque>

#include "core/index/clear_parts.hpp"
#include "core/index/impl.hpp"
#include "core/index/task_records.hpp"

namespace tq {
namespace {

using namespace index;

// Rows of one partition that nobody was given, ascending from the account's `first` on, which is moved forward.
std::vector<Segment> ungiven_rows(const Txn& txn, const Partition& partition, FlowRecord& record, const ShedOrder& order,
                                  const ClaimJudge& judge) {
  Verdicts verdicts(judge);
  std::vector<BitmapReader> marks;
  std::deque<ClaimedRows> claims;
  for (const std::uint64_t task : task_ids(txn, partition.id)) {
    marks.emplace_back(txn, marks_of(partition.id, task));
    claims.emplace_back(txn, partition.id, task, verdicts);
  }
  RowInfoReader info(txn, partition.id);
  DoomedRows doomed(txn, partition);
  RunCursor runs(txn, partition.id);
  std::vector<Segment> found;
  std::int64_t left = order.rows;
  bool first_known = false;
  auto spared = order.spared.begin();
  const auto look = [&](RowIndex row) {
    if (std::any_of(marks.begin(), marks.end(), [&](BitmapReader& task) { return task.test(row); })) return;
    if (!first_known) record.first = row;
    first_known = true;
    if (std::any_of(claims.begin(), claims.end(), [&](ClaimedRows& task) { return task.contains(row); })) return;
    while (spared != order.spared.end() && *spared < row) ++spared;
    if (spared != order.spared.end() && *spared == row) return;
    if (order.before_version) {
      const auto version = info.seek(row) ? stored_version(info.tags()) : std::nullopt;
      if (!version || *version >= *order.before_version) return;
    }
    --left;
    if (!found.empty() && found.back().row + found.back().count == row) {
      ++found.back().count;
    } else {
      found.push_back({row, 1, 0, 0});
    }
  };
  for (bool any = runs.seek(record.first); any && left > 0; any = runs.next()) {
    const RowIndex from = std::max(runs.run().start, record.first);
    doomed.for_each_living(from, runs.run().end() - from, [&](RowIndex first, std::int64_t count) {
      for (RowIndex row = first; row < first + count && left > 0; ++row) look(row);
    });
  }
  return found;
}

}  // namespace

Shed Index::Impl::shed(WriteTxn& txn, Partition& partition, FlowAccount& flow, const ShedOrder& order) {
  Shed done;
  const std::vector<Segment> wanted = ungiven_rows(txn, partition, flow.record(), order, judge);
  std::int64_t there = 0;
  for (const Segment& segment : wanted) there += segment.count;
  if (there == 0 || (order.all_or_none && there < order.rows)) return done;
  bool all = false;
  const std::vector<Segment> rows = affordable(txn, partition, wanted, clear_units(txn), &all);
  done.more = !all;
  for (const Segment& segment : rows) done.rows += segment.count;
  flow.remove_rows(rows);
  flow.record().shed_rows += static_cast<std::uint64_t>(done.rows);
  done.retired = remove_rows(txn, partition, rows);
  partition.record.rows -= done.rows;
  txn.counters.rows -= done.rows;
  return done;
}

std::vector<BlockRef> Index::Impl::shed_apart(const std::string& name, const ShedOrder& order, std::uint64_t* rows) {
  std::int64_t gone = 0;
  std::vector<BlockRef> retired = write(Room::release, [&](WriteTxn& txn) {
    gone = 0;
    auto partition = partition_by_name(txn, name);
    if (!partition) return std::vector<BlockRef>{};
    FlowAccount flow(txn, *partition);
    if (!flow) return std::vector<BlockRef>{};
    Shed done = shed(txn, *partition, flow, order);
    gone = done.rows;
    flow.store();
    store_partition(txn, *partition);
    return std::move(done.retired);
  });
  *rows += static_cast<std::uint64_t>(gone);
  return retired;
}

}  // namespace tq
