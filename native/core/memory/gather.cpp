#include "core/memory/gather.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/memory/copy.hpp"

namespace tq {

namespace {

[[noreturn]] void throw_corrupt(const FieldLayout& layout, const std::string& what) {
  throw Error(ErrorCode::corrupt, "field '" + layout.name + "' of a block: " + what);
}

// A field whose place in its block was checked once.
class CheckedField {
 public:
  CheckedField(const FieldInBlock& field, const Piece& piece) : base_(field.base), layout_(field.layout) {
    if (layout_ == nullptr || layout_->kind == FieldKind::column) {
      throw Error(ErrorCode::invalid, layout_ == nullptr
                                          ? "a piece names a block that lacks the field"
                                          : "field '" + layout_->name + "' is one blob; its rows are cut by the codec");
    }
    if (piece.count < 0 || piece.block_row < 0 || piece.block_row > field.n_rows ||
        piece.count > field.n_rows - piece.block_row) {
      throw Error(ErrorCode::invalid, "rows [" + std::to_string(piece.block_row) + ", + " + std::to_string(piece.count) +
                                          ") are not in a block of " + std::to_string(field.n_rows) + " rows");
    }
    const auto rows = static_cast<std::uint64_t>(field.n_rows);
    require(layout_->data_offset, layout_->data_nbytes, field.nbytes);
    if (layout_->kind == FieldKind::dense) {
      if (rows > 0 && layout_->row_nbytes > layout_->data_nbytes / rows) throw_corrupt(*layout_, "its rows exceed its bytes");
    } else {
      require(layout_->offsets_offset, (rows + 1) * 8, field.nbytes);
    }
  }

  // Bytes from the field's first one to row `row`.
  std::uint64_t row_begin(std::int64_t row) const {
    if (layout_->kind == FieldKind::dense) return static_cast<std::uint64_t>(row) * layout_->row_nbytes;
    std::int64_t offset = 0;
    std::memcpy(&offset, base_ + layout_->offsets_offset + static_cast<std::uint64_t>(row) * 8, 8);  // any alignment
    if (offset < 0 || static_cast<std::uint64_t>(offset) > layout_->data_nbytes) {
      throw_corrupt(*layout_, "offset " + std::to_string(offset) + " of row " + std::to_string(row) + " is outside its " +
                                  std::to_string(layout_->data_nbytes) + " bytes");
    }
    return static_cast<std::uint64_t>(offset);
  }

  Span rows(std::int64_t first, std::int64_t count) const {
    const std::uint64_t begin = row_begin(first);
    const std::uint64_t end = row_begin(first + count);
    if (end < begin) throw_corrupt(*layout_, "its offsets decrease after row " + std::to_string(first));
    return {begin, end - begin};
  }

  const std::byte* data() const { return base_ + layout_->data_offset; }

 private:
  void require(std::uint64_t offset, std::uint64_t nbytes, std::uint64_t block_nbytes) const {
    if (offset > block_nbytes || nbytes > block_nbytes - offset) {
      throw_corrupt(*layout_, "[" + std::to_string(offset) + ", + " + std::to_string(nbytes) + ") is outside its block of " +
                                  std::to_string(block_nbytes) + " bytes");
    }
  }
  const std::byte* base_;
  const FieldLayout* layout_;
};

CheckedField checked(std::span<const FieldInBlock> blocks, const Piece& piece) {
  if (piece.block < 0 || static_cast<std::size_t>(piece.block) >= blocks.size()) {
    throw Error(ErrorCode::invalid,
                "a piece names block " + std::to_string(piece.block) + " of " + std::to_string(blocks.size()));
  }
  return {blocks[static_cast<std::size_t>(piece.block)], piece};
}

}  // namespace

std::uint64_t gathered_nbytes(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces) {
  std::uint64_t total = 0;
  for (const Piece& piece : pieces) total += checked(blocks, piece).rows(piece.block_row, piece.count).nbytes;
  return total;
}

std::uint64_t gather_rows(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces, std::byte* destination,
                          std::uint64_t destination_nbytes) {
  std::vector<CopyRange> ranges;
  ranges.reserve(pieces.size());
  std::uint64_t total = 0;
  for (const Piece& piece : pieces) {
    const CheckedField field = checked(blocks, piece);
    const Span rows = field.rows(piece.block_row, piece.count);
    if (rows.nbytes > destination_nbytes - total) {
      throw Error(ErrorCode::invalid, "the rows do not fit into " + std::to_string(destination_nbytes) + " bytes");
    }
    if (rows.nbytes == 0) continue;
    // Rows that follow one another in the same block arrive as one range.
    if (!ranges.empty() && ranges.back().source + ranges.back().nbytes == field.data() + rows.offset) {
      ranges.back().nbytes += rows.nbytes;
    } else {
      ranges.push_back({destination + total, field.data() + rows.offset, rows.nbytes});
    }
    total += rows.nbytes;
  }
  return copy_ranges(ranges);
}

void row_nbytes(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces, std::span<std::int64_t> out) {
  std::size_t at = 0;
  for (const Piece& piece : pieces) {
    const CheckedField field = checked(blocks, piece);
    if (static_cast<std::size_t>(piece.count) > out.size() - at) {
      throw Error(ErrorCode::invalid, "more rows in the pieces than the " + std::to_string(out.size()) + " asked for");
    }
    for (std::int64_t row = piece.block_row; row < piece.block_row + piece.count; ++row) {
      out[at++] = static_cast<std::int64_t>(field.rows(row, 1).nbytes);
    }
  }
}

}  // namespace tq
