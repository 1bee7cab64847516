#include "core/memory/gather.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace tq {

namespace {

FieldRows checked(std::span<const FieldInBlock> blocks, const Piece& piece) {
  if (piece.block < 0 || static_cast<std::size_t>(piece.block) >= blocks.size()) {
    throw Error(ErrorCode::invalid,
                "a piece names block " + std::to_string(piece.block) + " of " + std::to_string(blocks.size()));
  }
  return {blocks[static_cast<std::size_t>(piece.block)], piece};
}

// `first`: the ranges before it belong to another field, whose bytes go elsewhere.
void append(std::vector<CopyRange>& ranges, std::size_t first, const std::byte* source, std::uint64_t nbytes) {
  if (nbytes == 0) return;
  if (ranges.size() > first && ranges.back().source + ranges.back().nbytes == source) {
    ranges.back().nbytes += nbytes;
  } else {
    ranges.push_back({nullptr, source, nbytes});
  }
}

// Bytes to units: a shift where it can be one, since a division a row is most of the time that 512 rows take.
class Units {
 public:
  explicit Units(std::uint64_t nbytes) : nbytes_(nbytes), shift_(std::has_single_bit(nbytes) ? std::countr_zero(nbytes) : -1) {}
  bool whole(std::uint64_t n) const { return shift_ >= 0 ? (n & (nbytes_ - 1)) == 0 : n % nbytes_ == 0; }
  std::int64_t count(std::uint64_t n) const { return static_cast<std::int64_t>(shift_ >= 0 ? n >> shift_ : n / nbytes_); }

 private:
  std::uint64_t nbytes_;
  int shift_;
};

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
  if (append_sources(blocks, pieces, 0, ranges).nbytes > destination_nbytes) {
    throw Error(ErrorCode::invalid, "the rows do not fit into " + std::to_string(destination_nbytes) + " bytes");
  }
  for (CopyRange& range : ranges) {
    range.destination = destination;
    destination += range.nbytes;
  }
  return copy_ranges(ranges);
}

void row_nbytes(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces, std::span<std::int64_t> out) {
  std::size_t at = 0;
  for (const Piece& piece : pieces) {
    const FieldRows field = checked(blocks, piece);
    if (static_cast<std::size_t>(piece.count) > out.size() - at) {
      throw Error(ErrorCode::invalid, "more rows in the pieces than the " + std::to_string(out.size()) + " asked for");
    }
    for (std::int64_t row = piece.block_row; row < piece.block_row + piece.count; ++row) {
      out[at++] = static_cast<std::int64_t>(field.rows(row, 1).nbytes);
    }
  }
}

RowShape append_sources(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces, std::uint64_t row_nbytes,
                        std::vector<CopyRange>& ranges) {
  const std::size_t first = ranges.size();
  RowShape shape;
  for (const Piece& piece : pieces) {
    const FieldRows field = checked(blocks, piece);
    const FieldLayout& layout = field.layout();
    if (row_nbytes != 0 && (layout.kind != FieldKind::dense || layout.row_nbytes != row_nbytes)) {
      throw_corrupt_field(layout, "its rows are not the " + std::to_string(row_nbytes) + " bytes that its type says");
    }
    const Span rows = field.rows(piece.block_row, piece.count);
    append(ranges, first, field.data() + rows.offset, rows.nbytes);
    shape.nbytes += rows.nbytes;
  }
  return shape;
}

RowShape append_ragged_sources(std::span<const FieldInBlock> blocks, std::span<const Piece> pieces,
                               std::uint64_t unit_nbytes, std::vector<CopyRange>& ranges,
                               std::span<std::int64_t> steps) {
  const std::size_t first = ranges.size();
  const Units units(unit_nbytes);
  RowShape shape{0, INT64_MAX, 0};
  std::size_t at = 0;
  steps[0] = 0;
  for (const Piece& piece : pieces) {
    const FieldRows field = checked(blocks, piece);
    if (static_cast<std::size_t>(piece.count) >= steps.size() - at) {
      throw Error(ErrorCode::invalid, "more rows in the pieces than the " + std::to_string(steps.size() - 1) + " asked for");
    }
    const auto count = static_cast<std::size_t>(piece.count);
    bool whole = true;
    const auto fill = [&](auto&& nbytes_of) {
      // All of it in registers: through references, every store into `steps` might be one into the others.
      std::int64_t* const out = steps.data() + at + 1;
      const Units unit = units;
      auto begin = static_cast<std::uint64_t>(steps[at]);
      std::int64_t shortest = shape.shortest;
      std::int64_t longest = shape.longest;
      bool all_whole = true;
      for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t nbytes = nbytes_of(i);
        all_whole &= unit.whole(nbytes);
        const std::int64_t length = unit.count(nbytes);
        shortest = std::min(shortest, length);
        longest = std::max(longest, length);
        begin += static_cast<std::uint64_t>(length);  // unsigned: damaged offsets may overflow here, before they are refused
        out[i] = static_cast<std::int64_t>(begin);
      }
      at += count;
      shape.shortest = shortest;
      shape.longest = longest;
      whole = whole && all_whole;
    };
    const Span bytes = field.rows(piece.block_row, piece.count);  // the two ends are in order and inside the field
    if (field.layout().kind == FieldKind::dense) {
      fill([&](std::size_t) { return field.layout().row_nbytes; });
    } else if (field.whole_block(piece.count)) {
      fill([&](std::size_t) { return bytes.nbytes; });
    } else {
      bool ordered = true;
      const std::byte* stored = field.stored_offsets(piece.block_row);
      std::uint64_t row_begin = bytes.offset;
      fill([&](std::size_t i) {
        std::uint64_t row_end = 0;
        std::memcpy(&row_end, stored + (i + 1) * sizeof row_end, sizeof row_end);
        ordered &= row_end >= row_begin;
        return row_end - std::exchange(row_begin, row_end);
      });
      // Should a damaged writer still be at it: what was read last must be the end that was checked.
      ordered = ordered && row_begin == bytes.offset + bytes.nbytes;
      if (!ordered) throw_corrupt_field(field.layout(), "its offsets decrease");
    }
    if (!whole) {
      throw_corrupt_field(field.layout(), "a row is not whole: its bytes do not divide by " + std::to_string(unit_nbytes));
    }
    append(ranges, first, field.data() + bytes.offset, bytes.nbytes);
    shape.nbytes += bytes.nbytes;
  }
  if (at + 1 != steps.size()) throw Error(ErrorCode::invalid, "fewer rows in the pieces than asked for");
  if (at == 0) shape.shortest = 0;
  return shape;
}

}  // namespace tq
