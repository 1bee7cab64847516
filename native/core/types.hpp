// Value types shared by every part of the core. No Python header is included below native/core.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tq {

using RowIndex = std::int64_t;      // global index: unique in the session, never reused
using PartitionId = std::uint32_t;  // never reused either: a cleared partition's id dies with it
using FieldId = std::uint32_t;      // one per distinct field name of the session
using OwnerId = std::uint64_t;      // one per lease file; never reused in a session

// Names one incarnation of a block: `generation << 24 | slot`. Generations never repeat, so two equal
// refs mean the same bytes. 0 is "no block" (generations start at 1).
struct BlockRef {
  static constexpr unsigned slot_bits = 24;
  std::uint64_t word = 0;

  static constexpr BlockRef make(std::uint64_t generation, std::uint32_t slot) {
    return BlockRef{generation << slot_bits | slot};
  }
  constexpr std::uint32_t slot() const { return static_cast<std::uint32_t>(word & ((1u << slot_bits) - 1)); }
  constexpr std::uint64_t generation() const { return word >> slot_bits; }
  constexpr explicit operator bool() const { return word != 0; }
  friend constexpr bool operator==(BlockRef, BlockRef) = default;
};

// Offsets from here on mean the spill file, those below the payload segment. No store reaches it, so spans of the two regions
// never touch and one number says where bytes lie.
inline constexpr std::uint64_t spill_base = std::uint64_t{1} << 62;

// A byte range of the payload segment, or of the spill file.
struct Span {
  std::uint64_t offset = 0;
  std::uint64_t nbytes = 0;
  constexpr bool spilled() const { return offset >= spill_base; }
  friend constexpr bool operator==(const Span&, const Span&) = default;
};

// How the rows of one field lie in a block. Offsets are bytes from the start of the block.
enum class FieldKind : std::uint8_t {
  dense = 0,   // row r: [data_offset + r * row_nbytes, + row_nbytes)
  ragged = 1,  // row r: data_offset + [offsets[r], offsets[r + 1]); offsets: int64[n_rows + 1] at offsets_offset, bytes
  column = 2,  // one opaque blob for all rows of the block (for instance an Arrow stream); rows are cut by the codec
};

struct FieldLayout {
  std::string name;
  FieldKind kind = FieldKind::dense;
  std::uint64_t data_offset = 0;
  std::uint64_t data_nbytes = 0;
  std::uint64_t row_nbytes = 0;      // dense only
  std::uint64_t offsets_offset = 0;  // ragged only
  std::string schema;                // opaque to the core: the codec's description (dtype, row shape, ...)
  std::uint32_t schema_id = 0;       // set by the index: in this process equal numbers mean equal schemas
};

// One stretch of requested rows that lie one after another in one block:
// requested rows [first, first + count) are the rows [block_row, block_row + count) of blocks[block].
struct Piece {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t block = 0;  // index into the list of blocks of the same answer
  std::int64_t block_row = 0;
};

}  // namespace tq
