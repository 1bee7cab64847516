// Reading rows that lie scattered over blocks: which bytes they are, how long each row is, and one copy of all of them.
// What is corrupt in a layout or in offsets is Error(corrupt), see field_rows.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/memory/copy.hpp"
#include "core/memory/field_rows.hpp"
#include "core/types.hpp"

namespace tq {

// The bytes that the rows of `pieces` take one after another (dense and ragged). `blocks` is indexed by Piece::block.
// Error(invalid): a piece outside its block's rows, a block without the field. Error(corrupt): a column field.
std::uint64_t gathered_nbytes(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces);

// Concatenates them, in order, at `destination`; returns the bytes written. Error(invalid) when they do not fit.
// The caller keeps every block leased meanwhile.
std::uint64_t gather_rows(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces, std::byte* destination,
                          std::uint64_t destination_nbytes);

// Bytes of each row, in order; `out` has one entry per row of `pieces`.
void row_nbytes(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces, std::span<std::int64_t> out);

// What is known of rows before they are read, from one pass over layouts and offsets.
struct RowShape {
  std::uint64_t nbytes = 0;    // of all rows
  std::int64_t shortest = 0;   // row, in units; 0 without rows
  std::int64_t longest = 0;
};

// Appends the source of each row of `pieces` to `ranges` (rows that follow one another in memory as one range), destinations
// left out. Error(corrupt): a row that is not `row_nbytes` long; 0: any size will do.
RowShape append_sources(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces, std::uint64_t row_nbytes,
                        std::vector<CopyRange>& ranges);

// The same for rows of their own lengths, counted in units of `unit_nbytes` (at least 1): steps[i] is where row i begins, one
// more entry than rows. Error(corrupt): a row that is no whole number of units.
RowShape append_ragged_sources(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces,
                               std::uint64_t unit_nbytes, std::vector<CopyRange>& ranges, std::span<std::int64_t> steps);

}  // namespace tq
