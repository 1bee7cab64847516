// RunRewriter: what an overwrite, a move or a clear does to the runs it meets.
#include "core/index/runs.hpp"

namespace tq::index {

void RunRewriter::add_entry(std::uint64_t ref, std::uint32_t block_row, std::span<const FieldId> fields) {
  entries_.push_back({ref, block_row, static_cast<std::uint32_t>(fields_.size()), static_cast<std::uint32_t>(fields.size())});
  fields_.insert(fields_.end(), fields.begin(), fields.end());
  ++runs_.back().n_entries;
}

bool RunRewriter::continues(const Planned& before, const Planned& after) const {
  if (before.start + before.count != after.start || before.n_entries != after.n_entries) return false;
  if (before.count + after.count > max_run_rows) return false;
  for (std::size_t i = 0; i < before.n_entries; ++i) {
    const Entry& a = entries_[before.entries_at + i];
    const Entry& b = entries_[after.entries_at + i];
    if (a.ref != b.ref || a.n_fields != b.n_fields || a.block_row + before.count != b.block_row) return false;
    if (!std::equal(fields_.begin() + a.fields_at, fields_.begin() + a.fields_at + a.n_fields, fields_.begin() + b.fields_at)) {
      return false;
    }
  }
  return true;
}

void RunRewriter::end_run() {
  if (runs_.size() < 2 || !continues(runs_[runs_.size() - 2], runs_.back())) return;
  const Planned joined = runs_.back();
  if (joined.n_entries > 0) fields_.resize(entries_[joined.entries_at].fields_at);
  entries_.resize(joined.entries_at);
  runs_.pop_back();
  runs_.back().count += joined.count;
}

void RunRewriter::copy_part(const RunView& run, std::int64_t offset, std::int64_t count) {
  change_part(run, offset, count, {}, BlockRef{}, 0);
}

void RunRewriter::change_part(const RunView& run, std::int64_t offset, std::int64_t count, const std::vector<FieldId>& fields,
                              BlockRef block, std::int64_t block_row) {
  begin_run(run.start + offset, count);
  bool placed = fields.empty();
  const auto place = [&] {
    add_entry(block.word, static_cast<std::uint32_t>(block_row), fields);
    placed = true;
  };
  run.for_each([&](BlockRef ref, std::uint32_t row, std::size_t n_fields, const char* ids) {
    kept_.clear();
    auto taken = fields.begin();
    for (std::size_t i = 0; i < n_fields; ++i) {
      const FieldId id = field_at(ids, i);
      while (taken != fields.end() && *taken < id) ++taken;
      if (taken == fields.end() || *taken != id) kept_.push_back(id);
    }
    if (kept_.size() < n_fields) live_.remove(ref, (n_fields - kept_.size()) * static_cast<std::uint64_t>(count));
    if (!placed && block.word < ref.word) place();
    if (!kept_.empty()) add_entry(ref.word, row + static_cast<std::uint32_t>(offset), kept_);
  });
  if (!placed) place();
  end_run();
}

void RunRewriter::remove_part(const RunView& run, std::int64_t count) {
  run.for_each([&](BlockRef ref, std::uint32_t, std::size_t n_fields, const char*) {
    live_.remove(ref, n_fields * static_cast<std::uint64_t>(count));
  });
}

RewriteResult RunRewriter::plan(std::span<const Segment> segments, BlockRef block, const Transform& transform) {
  RewriteResult result;
  RunCursor cursor(txn_, partition_);
  std::size_t at = 0;
  std::int64_t done = 0;  // rows of segments[at] dealt with
  const auto miss = [&](std::int64_t count) {
    result.rows_missing += count;
    done += count;
    if (done == segments[at].count) {
      ++at;
      done = 0;
    }
  };
  while (at < segments.size()) {
    const RowIndex row = segments[at].row + done;
    const std::int64_t left = segments[at].count - done;
    if (!cursor.seek(row) || cursor.run().start >= row + left) {
      miss(left);
      continue;
    }
    if (cursor.run().start > row) miss(cursor.run().start - row);
    const RunView run = cursor.run();
    old_starts_.push_back(run.start);
    RowIndex next = run.start;  // first row of the run not yet in the plan
    while (at < segments.size() && segments[at].row + done < run.end()) {
      const Segment& segment = segments[at];
      const RowIndex first = segment.row + done;
      if (first > next) copy_part(run, next - run.start, first - next);
      const std::int64_t count = std::min(segment.row + segment.count, run.end()) - first;
      if (const auto* fields = transform(run, first - run.start, segment, done)) {
        change_part(run, first - run.start, count, *fields, block, segment.block_row + done);
        result.cells_taken += fields->size() * static_cast<std::uint64_t>(count);
      } else {
        remove_part(run, count);
      }
      next = first + count;
      done += count;
      if (done == segment.count) {
        ++at;
        done = 0;
      }
    }
    if (next < run.end()) copy_part(run, next - run.start, run.end() - next);
  }
  return result;
}

std::string_view RunRewriter::encode(const Planned& run) {
  out_.clear();
  out_.number(static_cast<std::uint32_t>(run.count)).number(static_cast<std::uint16_t>(run.n_entries));
  for (std::size_t i = 0; i < run.n_entries; ++i) {
    const Entry& entry = entries_[run.entries_at + i];
    out_.number(entry.ref).number(entry.block_row).number(static_cast<std::uint16_t>(entry.n_fields));
    out_.bytes({reinterpret_cast<const char*>(fields_.data() + entry.fields_at), entry.n_fields * sizeof(FieldId)});
  }
  return out_.view();
}

void RunRewriter::apply() {
  // Both lists ascend; a start that stays is overwritten in place.
  auto kept = runs_.begin();
  for (const RowIndex start : old_starts_) {
    while (kept != runs_.end() && kept->start < start) ++kept;
    if (kept == runs_.end() || kept->start != start) txn_.erase(Key(Table::runs).u32(partition_).row(start));
  }
  for (const Planned& run : runs_) txn_.put(Key(Table::runs).u32(partition_).row(run.start), encode(run));
}

}  // namespace tq::index
