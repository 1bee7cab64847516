// The cells of the model test, and what each block loses and gets.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "index/support.hpp"

namespace tq_test {

struct Row {
  std::string key;
  std::map<std::string, std::string> tags;
  std::map<std::string, Cell> cells;
};
using Partition = std::map<RowIndex, Row>;

inline std::string map_of(const std::map<std::string, std::string>& tags) {
  return tags.empty() ? "" : tag_map({tags.begin(), tags.end()});
}

class ModelCells {
 protected:
  // The model's side of giving cells another block: whose last cell went.
  void set_cell(Row& row, const std::string& field, std::optional<Cell> cell) {
    auto& cells = row.cells;
    if (const auto old = cells.find(field); old != cells.end()) {
      if (--live[old->second.block] == 0) went.insert(old->second.block);
      cells.erase(old);
    }
    if (!cell) return;
    cells.emplace(field, *cell);
    ++live[cell->block];
  }
  void remove_row(Partition& rows, Partition::iterator row) {
    while (!row->second.cells.empty()) set_cell(row->second, row->second.cells.begin()->first, std::nullopt);
    rows.erase(row);
  }
  // Blocks that moved to the spill file: old ref -> new ref.
  void rename_blocks(std::map<std::string, Partition>& partitions, const std::map<std::uint64_t, std::uint64_t>& renamed) {
    for (const auto& [from, to] : renamed) {
      spilled.insert(to);
      live[to] = live[from];
      live[from] = 0;
      retired.push_back(from);
    }
    for (auto& [name, rows] : partitions) {
      for (auto& [index, row] : rows) {
        for (auto& [field, cell] : row.cells) {
          if (const auto at = renamed.find(cell.block); at != renamed.end()) cell.block = at->second;
        }
      }
    }
  }

  std::map<std::uint64_t, std::int64_t> live;  // block -> cells that name it
  std::set<std::uint64_t> went;                // blocks without a cell since the last check
  std::vector<std::uint64_t> retired;
  std::set<std::uint64_t> spilled;  // blocks that lie in the spill file, or did
};

}  // namespace tq_test
