#include "core/memory/field_rows.hpp"

#include <cstring>

#include "core/error.hpp"

namespace tq {

void throw_corrupt_field(const FieldLayout& layout, const std::string& what) {
  throw Error(ErrorCode::corrupt, "field '" + layout.name + "' of a block: " + what);
}

FieldRows::FieldRows(const FieldInBlock& field, const Piece& piece) : base_(field.base), layout_(field.layout), n_rows_(field.n_rows) {
  if (layout_ == nullptr) throw Error(ErrorCode::invalid, "a piece names a block that lacks the field");
  // Who reads columns knows that they are: a kind that says otherwise than the rest of the schema was damaged.
  if (layout_->kind == FieldKind::column) throw_corrupt_field(*layout_, "it is one blob; its rows are cut by the codec");
  if (piece.count < 0 || piece.block_row < 0 || piece.block_row > field.n_rows ||
      piece.count > field.n_rows - piece.block_row) {
    throw Error(ErrorCode::invalid, "rows [" + std::to_string(piece.block_row) + ", + " + std::to_string(piece.count) +
                                        ") are not in a block of " + std::to_string(field.n_rows) + " rows");
  }
  const auto rows = static_cast<std::uint64_t>(field.n_rows);
  require(layout_->data_offset, layout_->data_nbytes, field.nbytes);
  if (layout_->kind == FieldKind::dense) {
    if (rows > 0 && layout_->row_nbytes > layout_->data_nbytes / rows) {
      throw_corrupt_field(*layout_, "its rows exceed its bytes");
    }
  } else {
    if (rows >= field.nbytes / 8) throw_corrupt_field(*layout_, "it has more rows than its block has room for offsets");
    require(layout_->offsets_offset, (rows + 1) * 8, field.nbytes);
  }
}

std::uint64_t FieldRows::row_begin(std::int64_t row) const {
  if (layout_->kind == FieldKind::dense) return static_cast<std::uint64_t>(row) * layout_->row_nbytes;
  std::int64_t offset = 0;
  std::memcpy(&offset, base_ + layout_->offsets_offset + static_cast<std::uint64_t>(row) * 8, 8);  // any alignment
  if (offset < 0 || static_cast<std::uint64_t>(offset) > layout_->data_nbytes) {
    throw_corrupt_field(*layout_, "offset " + std::to_string(offset) + " of row " + std::to_string(row) +
                                      " is outside its " + std::to_string(layout_->data_nbytes) + " bytes");
  }
  return static_cast<std::uint64_t>(offset);
}

void FieldRows::require(std::uint64_t offset, std::uint64_t nbytes, std::uint64_t block_nbytes) const {
  if (offset > block_nbytes || nbytes > block_nbytes - offset) {
    throw_corrupt_field(*layout_, "[" + std::to_string(offset) + ", + " + std::to_string(nbytes) +
                                      ") is outside its block of " + std::to_string(block_nbytes) + " bytes");
  }
}

void FieldRows::throw_decreasing(std::int64_t row) const {
  throw_corrupt_field(*layout_, "its offsets decrease after row " + std::to_string(row));
}

}  // namespace tq
