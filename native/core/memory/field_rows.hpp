// The rows of one field in one block: which bytes they are. Layout and offsets come from shared memory and are checked before
// use; what contradicts itself is Error(corrupt) and not a stray read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/types.hpp"

namespace tq {

// Where the block begins in this process, how large it is, and how the field lies in it.
// `layout` null: the block lacks the field.
struct FieldInBlock {
  const std::byte* base = nullptr;
  std::uint64_t nbytes = 0;
  std::int64_t n_rows = 0;
  const FieldLayout* layout = nullptr;
};

// A field whose place in its block was checked once, for the rows of one piece. Error(invalid): the piece is not inside the
// block's rows, or the block lacks the field. Error(corrupt): it is a column field.
class FieldRows {
 public:
  FieldRows(const FieldInBlock& field, const Piece& piece);

  // Rows [first, first + count) as bytes after the field's first one.
  Span rows(std::int64_t first, std::int64_t count) const {
    if (whole_block(count)) return {0, layout_->kind == FieldKind::dense ? layout_->row_nbytes : layout_->data_nbytes};
    const std::uint64_t begin = row_begin(first);
    const std::uint64_t end = row_begin(first + count);
    if (end < begin) throw_decreasing(first);
    return {begin, end - begin};
  }
  // Bytes from the field's first one to row `row`.
  std::uint64_t row_begin(std::int64_t row) const;
  // The `count` rows from `first` on are the only one of the block: all its data, whose two offsets need no look. Where rows
  // were put one by one, that look would be most of the time of a gather: a page of its own for every row.
  bool whole_block(std::int64_t count) const { return n_rows_ == 1 && count == 1; }
  // Where rows [first, first + count] of a ragged field begin: count + 1 offsets as they stand, of any alignment and not checked.
  const std::byte* stored_offsets(std::int64_t first) const {
    return base_ + layout_->offsets_offset + static_cast<std::uint64_t>(first) * sizeof(std::int64_t);
  }
  const std::byte* data() const { return base_ + layout_->data_offset; }
  const FieldLayout& layout() const { return *layout_; }

 private:
  void require(std::uint64_t offset, std::uint64_t nbytes, std::uint64_t block_nbytes) const;
  [[noreturn]] void throw_decreasing(std::int64_t row) const;

  const std::byte* base_;
  const FieldLayout* layout_;
  std::int64_t n_rows_;
};

// Error(corrupt) that names the field.
[[noreturn]] void throw_corrupt_field(const FieldLayout& layout, const std::string& what);

}  // namespace tq
