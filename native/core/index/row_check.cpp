#include "core/index/row_check.hpp"

#include <algorithm>

#include "core/index/runs.hpp"
#include "core/index/tombstones.hpp"

namespace tq::index {

std::vector<RowIndex> missing_rows(const Txn& txn, const Partition& partition, std::vector<RowIndex> rows) {
  std::sort(rows.begin(), rows.end());
  DoomedRows doomed(txn, partition);
  RunCursor runs(txn, partition.id);
  std::erase_if(rows, [&](RowIndex row) {
    return row >= 0 && runs.seek(row) && runs.run().start <= row && !doomed.contains(row);
  });
  return rows;
}

Error stale_rows(std::vector<RowIndex> rows, const std::string& what) {
  Error error(ErrorCode::stale_rows, std::to_string(rows.size()) + " of the rows that " + what +
                                         " were put on do not exist (any more): they were cleared, or never were; row " +
                                         std::to_string(rows.front()) + " is one of them");
  error.rows = std::move(rows);
  return error;
}

}  // namespace tq::index
