#include "core/index/runs.hpp"

namespace tq::index {
namespace {

RunView parse_run(RowIndex start, std::string_view value) {
  Reader in(value);
  RunView run;
  run.start = start;
  run.count = in.number<std::uint32_t>();
  run.n_entries = in.number<std::uint16_t>();
  run.entries = in.bytes(in.left());
  if (run.count == 0 || run.count > max_run_rows || !may_exist(start)) corrupt("a run of rows that cannot exist");
  return run;
}

void put_head(Writer& out, std::int64_t count, std::size_t n_entries) {
  out.number(static_cast<std::uint32_t>(count)).number(static_cast<std::uint16_t>(n_entries));
}

void put_entry(Writer& out, std::uint64_t ref, std::uint32_t block_row, std::span<const FieldId> fields) {
  out.number(ref).number(block_row).number(static_cast<std::uint16_t>(fields.size()));
  out.bytes({reinterpret_cast<const char*>(fields.data()), fields.size_bytes()});
}

}  // namespace

bool RunCursor::accept(bool found) {
  valid_ = found && key_u32(cursor_.tail(), 0) == partition_;
  if (valid_) run_ = parse_run(key_row(cursor_.tail(), 4), cursor_.value());
  return valid_;
}

bool RunCursor::first() {
  const Counters counters = stored_counters(txn_);
  limit_ = counters.row_end();
  left_ = counters.rows_made();
  listing_ = true;
  return accept_listed(0, cursor_.seek(Key(Table::runs).u32(partition_).row(0)));
}

bool RunCursor::next() { return accept_listed(run_.end(), cursor_.next()); }

// Who lists all rows pays for every row that the runs claim, so these are rows that were made, each once.
bool RunCursor::accept_listed(RowIndex from, bool found) {
  if (!accept(found)) return false;
  if (run_.start < from || run_.count > limit_ - run_.start) corrupt("runs that overlap, or rows that never were");
  if (!listing_) return true;
  if (run_.count > left_) corrupt("runs of more rows than were made");
  left_ -= run_.count;
  return true;
}

bool RunCursor::seek(RowIndex row) {
  row = std::max<RowIndex>(row, 0);  // nothing lies before row 0, whatever a caller asks for
  if (valid_ && row >= run_.start) {
    if (row < run_.end()) return true;
    if (!next()) return false;
    if (row < run_.end()) return true;
  }
  // The run that starts last at or before `row`, if it reaches it; else the one behind.
  const Key key = Key(Table::runs).u32(partition_).row(row);
  if (accept(cursor_.seek(key)) && run_.start == row) return true;
  if (accept(cursor_.last_before(key))) {
    if (row < run_.end()) return true;
    return next();
  }
  return accept(cursor_.seek(key));
}

void add_fresh_run(WriteTxn& txn, PartitionId partition, RowIndex start, std::int64_t count, BlockRef block,
                   std::int64_t block_row, std::span<const FieldId> fields) {
  Writer out;
  put_head(out, count, fields.empty() ? 0 : 1);
  if (!fields.empty()) put_entry(out, block.word, static_cast<std::uint32_t>(block_row), fields);
  txn.put(Key(Table::runs).u32(partition).row(start), out.view());
}

std::vector<Segment> make_segments(std::span<const RowIndex> rows, bool drop_repeats) {
  const auto n = static_cast<std::int64_t>(rows.size());
  std::vector<Segment> segments;
  bool ascending = true;
  for (std::int64_t i = 0; i < n; ++i) {
    const RowIndex row = rows[static_cast<std::size_t>(i)];
    if (!may_exist(row)) continue;
    if (!segments.empty()) {
      Segment& last = segments.back();
      if (last.row + last.count == row && last.block_row + last.count == i) {
        ++last.count;
        continue;
      }
      if (row < last.row + last.count) ascending = false;
    }
    segments.push_back({row, 1, i, 0});
  }
  if (ascending) return segments;
  std::sort(segments.begin(), segments.end(),
            [](const Segment& a, const Segment& b) { return a.row != b.row ? a.row < b.row : a.block_row < b.block_row; });
  std::vector<Segment> distinct;
  distinct.reserve(segments.size());
  RowIndex covered = 0;  // rows below it stand in `distinct`
  for (Segment segment : segments) {
    const std::int64_t repeated = std::min(segment.count, std::max<std::int64_t>(0, covered - segment.row));
    if (repeated > 0 && !drop_repeats) {
      Error error(ErrorCode::invalid, "row " + std::to_string(segment.row) + " stands twice in one call");
      error.rows = {segment.row};
      throw error;
    }
    segment.row += repeated;
    segment.block_row += repeated;
    segment.count -= repeated;
    if (segment.count == 0) continue;
    distinct.push_back(segment);
    covered = segment.row + segment.count;
  }
  return distinct;
}

}  // namespace tq::index
