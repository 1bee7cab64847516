#include "core/index/saved_check.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "core/index/layout.hpp"
#include "core/index/names.hpp"
#include "core/index/runs.hpp"

namespace tq {

std::string_view StringColumn::at(std::size_t i) const {
  const std::int64_t begin = i == 0 ? 0 : ends[i - 1];
  if (begin < 0 || ends[i] < begin || static_cast<std::size_t>(ends[i]) > bytes.size()) {
    throw Error(ErrorCode::invalid, "a column of strings whose ends do not ascend within its bytes");
  }
  return std::string_view(bytes).substr(static_cast<std::size_t>(begin), static_cast<std::size_t>(ends[i] - begin));
}

namespace index {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::invalid, "tables that are no session: " + what); }

bool is_place(std::int64_t number, std::size_t size) { return number >= 0 && static_cast<std::size_t>(number) < size; }

void check_names(const SavedSession& saved) {
  std::set<std::string_view> names;
  for (const std::string& name : saved.partitions) {
    check_name(name, "partition");
    if (!names.insert(name).second) refuse("partition '" + name + "' stands twice");
  }
  if (saved.known_fields.size() != saved.partitions.size()) refuse("fields of other partitions");
  for (const std::vector<std::string>& fields : saved.known_fields) {
    for (const std::string& field : fields) check_name(field, "field");
  }
  std::set<std::pair<std::int64_t, std::string_view>> tasks;
  for (const SavedTask& task : saved.tasks) {
    if (!is_place(task.partition, saved.partitions.size())) refuse("a task of no partition");
    check_name(task.name, "task");
    if (!tasks.emplace(task.partition, task.name).second) refuse("task '" + task.name + "' stands twice");
  }
}

void check_blocks(const SavedSession& saved, const std::vector<Reservation>& reservations) {
  if (reservations.size() != saved.blocks.size()) refuse("another number of blocks than of reservations");
  std::set<std::uint64_t> refs;
  for (std::size_t b = 0; b < saved.blocks.size(); ++b) {
    const SavedBlock& block = saved.blocks[b];
    if (!is_place(block.partition, saved.partitions.size())) refuse("a block of no partition");
    if (block.n_rows <= 0 || block.n_rows > max_run_rows) refuse("a block of " + std::to_string(block.n_rows) + " rows");
    if (block.fields.empty() || block.fields.size() > max_block_fields) refuse("a block without fields, or with too many");
    if (block.elsewhere_bytes.value_or(0) > max_elsewhere_bytes) refuse("a block that stands for an impossible number of bytes");
    check_layouts(block.fields, reservations[b].span.nbytes, block.n_rows);
    if (!refs.insert(reservations[b].block.word).second) refuse("a reservation stands twice");
  }
}

// A row of `ranges` (ascending, apart) covers the whole range.
bool covered(const std::vector<RowRange>& ranges, RowRange range) {
  auto at = std::upper_bound(ranges.begin(), ranges.end(), range.first,
                             [](RowIndex row, const RowRange& other) { return row < other.first; });
  if (at == ranges.begin()) return false;
  --at;
  return range.first - at->first <= at->count && range.count <= at->count - (range.first - at->first);
}

// Rows that were given out, or that the session does not give out itself.
bool may_have_been(const SavedSession& saved, RowIndex first, std::int64_t count) {
  if (count <= 0 || first < 0 || first > row_limit - count) return false;
  return first + count <= saved.next_row || first >= own_rows(saved.next_row).end;
}

class RunCheck {
 public:
  explicit RunCheck(const SavedSession& saved) : saved_(saved), living(saved.partitions.size()), live_cells_(saved.blocks.size()) {}

  void run() {
    for (const SavedRun& run : saved_.runs) check(run);
    check_apart();
    if (cell_ != saved_.cells.size() || field_ != saved_.cell_fields.size()) refuse("cells of no run");
    for (std::size_t b = 0; b < live_cells_.size(); ++b) {
      const SavedBlock& block = saved_.blocks[b];
      const std::uint64_t cells = static_cast<std::uint64_t>(block.n_rows) * block.fields.size();
      if (live_cells_[b] == 0) refuse("a block that no row names");
      if (live_cells_[b] > cells) refuse("more rows name a block than it has");
    }
  }

 private:
  // An index stands for one row of one partition.
  void check_apart() const {
    std::vector<RowRange> all;
    for (const std::vector<RowRange>& rows : living) all.insert(all.end(), rows.begin(), rows.end());
    std::sort(all.begin(), all.end(), [](const RowRange& a, const RowRange& b) { return a.first < b.first; });
    for (std::size_t i = 1; i < all.size(); ++i) {
      if (all[i - 1].first + all[i - 1].count > all[i].first) refuse("one index for rows of two partitions");
    }
  }

  void check(const SavedRun& run) {
    if (!is_place(run.partition, saved_.partitions.size()) || run.partition < partition_) refuse("runs out of order");
    if (run.partition > partition_) next_ = 0;
    partition_ = run.partition;
    if (run.first < next_ || run.count > max_run_rows || !may_have_been(saved_, run.first, run.count)) {
      refuse("rows that overlap, or beyond the last index");
    }
    next_ = run.first + run.count;
    std::vector<RowRange>& rows = living[static_cast<std::size_t>(partition_)];
    if (!rows.empty() && rows.back().first + rows.back().count == run.first) {
      rows.back().count += run.count;
    } else {
      rows.push_back({run.first, run.count});
    }
    if (run.n_cells < 0 || static_cast<std::size_t>(run.n_cells) > std::min<std::size_t>(saved_.cells.size() - cell_, 0xffff)) {
      refuse("a run with more cells than there are");
    }
    fields_.clear();
    for (std::int64_t i = 0; i < run.n_cells; ++i) check(run, saved_.cells[cell_++]);
  }

  void check(const SavedRun& run, const SavedCell& cell) {
    if (!is_place(cell.block, saved_.blocks.size())) refuse("a cell of no block");
    const SavedBlock& block = saved_.blocks[static_cast<std::size_t>(cell.block)];
    if (block.partition != run.partition) refuse("a cell in another partition's block");
    if (cell.block_row < 0 || run.count > block.n_rows || cell.block_row > block.n_rows - run.count) {
      refuse("a cell beyond the rows of its block");
    }
    if (cell.n_fields <= 0 || static_cast<std::size_t>(cell.n_fields) > std::min(saved_.cell_fields.size() - field_, block.fields.size())) {
      refuse("a cell with more fields than there are");
    }
    for (std::int64_t i = 0; i < cell.n_fields; ++i) {
      const std::int64_t field = saved_.cell_fields[field_++];
      if (!is_place(field, block.fields.size())) refuse("a cell of a field that its block lacks");
      if (!fields_.insert(block.fields[static_cast<std::size_t>(field)].name).second) refuse("a field stands twice on a row");
    }
    live_cells_[static_cast<std::size_t>(cell.block)] += static_cast<std::uint64_t>(cell.n_fields * run.count);
  }

  const SavedSession& saved_;

 public:
  std::vector<std::vector<RowRange>> living;  // of each partition

 private:
  std::vector<std::uint64_t> live_cells_;
  std::set<std::string_view> fields_;  // of the run at hand
  std::int64_t partition_ = 0;
  RowIndex next_ = 0;
  std::size_t cell_ = 0;
  std::size_t field_ = 0;
};

}  // namespace

void check_saved(const SavedSession& saved, const std::vector<Reservation>& reservations) {
  if (!may_exist(saved.next_row) || saved.next_row > own_rows(saved.next_row).end) refuse("a last index that is none");
  check_names(saved);
  check_blocks(saved, reservations);
  RunCheck runs(saved);
  runs.run();
  if (saved.keys.size() != saved.rows.size() || saved.tags.size() != saved.rows.size()) refuse("keys or tags of other rows");
  for (std::size_t i = 0; i < saved.rows.size(); ++i) {
    const SavedRow& row = saved.rows[i];
    if (!is_place(row.partition, saved.partitions.size())) refuse("a named row of no partition");
    if (i > 0) {
      const SavedRow& before = saved.rows[i - 1];
      if (std::pair(row.partition, row.row) <= std::pair(before.partition, before.row)) refuse("named rows out of order");
    }
    if (!covered(runs.living[static_cast<std::size_t>(row.partition)], {row.row, 1})) refuse("a key or tags of a row that is not there");
  }
  for (const SavedTask& task : saved.tasks) {
    RowIndex next = 0;
    for (const RowRange& range : task.consumed) {
      if (range.first < next || !may_have_been(saved, range.first, range.count)) {
        refuse("task '" + task.name + "' consumed rows that never were");
      }
      next = range.first + range.count;
    }
  }
}

}  // namespace index
}  // namespace tq
