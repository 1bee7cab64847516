// Reading rows that lie scattered over blocks: which bytes they are, and one fresh buffer of them.
// Offsets come from shared memory and are checked before use; a bad one is Error(corrupt) and not a stray read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/types.hpp"

namespace tq {

// One field in one block: where the block begins in this process, how large it is, and how the field lies in it.
// `layout` null: the block lacks the field.
struct FieldInBlock {
  const std::byte* base = nullptr;
  std::uint64_t nbytes = 0;
  std::int64_t n_rows = 0;
  const FieldLayout* layout = nullptr;
};

// The bytes that the rows of `pieces` take one after another (dense and ragged). `blocks` is indexed by Piece::block.
// Error(invalid): a piece outside its block's rows, a block without the field, a column field.
std::uint64_t gathered_nbytes(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces);

// Concatenates them, in order, at `destination`; returns the bytes written. Error(invalid) when they do not fit.
// The caller keeps every block leased meanwhile.
std::uint64_t gather_rows(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces, std::byte* destination,
                          std::uint64_t destination_nbytes);

// Bytes of each row, in order; `out` has one entry per row of `pieces`.
void row_nbytes(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces, std::span<std::int64_t> out);

}  // namespace tq
