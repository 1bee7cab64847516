// Which of some rows exist.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/index/names.hpp"
#include "core/index/txn.hpp"

namespace tq::index {

// Rows without a run, doomed ones included, ascending.
std::vector<RowIndex> missing_rows(const Txn& txn, const Partition& partition, std::vector<RowIndex> rows);
// Error(stale_rows) of `rows`, which are not empty; `what` was to be put on them.
Error stale_rows(std::vector<RowIndex> rows, const std::string& what);

}  // namespace tq::index
