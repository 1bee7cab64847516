// Published blocks of which not all is named by a row any more, and the rows that still name them: what a compaction chooses
// from. A hint and no promise: rows come and go meanwhile, and a move compares every cell before it changes it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/types.hpp"

namespace tq {

struct SparseBlocks {
  struct Block {
    BlockRef ref;
    Span span;
    std::int64_t n_rows = 0;
    bool headroom = false;         // lies in the room that only compaction takes, and should leave it whatever lives of it
    bool leased = false;           // somebody reads it: moving its rows frees nothing yet
    std::uint64_t live_bytes = 0;  // exact, row by row; 0 where `leased`
  };
  // Cells that can lie in one block: of one partition, the same fields, and each of the same type.
  struct Group {
    std::string partition;
    std::vector<std::string> fields;
  };
  // Fields of one block that the same rows name.
  struct Shape {
    std::int64_t block = 0;
    std::int64_t group = 0;
    std::vector<std::shared_ptr<const FieldLayout>> fields;
  };
  // Rows [row, row + count) name the fields of `shape` in rows [block_row, + count) of its block.
  struct Range {
    std::int64_t shape = 0;
    RowIndex row = 0;
    std::int64_t count = 0;
    std::int64_t block_row = 0;
  };
  std::vector<Block> blocks;
  std::vector<Group> groups;
  std::vector<Shape> shapes;
  std::vector<Range> ranges;  // of one partition after the other, ascending by row within one
  BlockRef next;              // where to go on looking; 0: that was all
};

}  // namespace tq
