// Whole columns in one call: one pass over layouts and offsets finds all sources, then one copy of all that is not viewed.
#include <vector>

#include "core/memory/fork_gate.hpp"
#include "core/memory/gather.hpp"
#include "core/memory/gather_buffer.hpp"
#include "core/pause.hpp"
#include "core/store/resolved.hpp"

namespace tq {

bool Resolved::complete() const noexcept {
  const auto rows = static_cast<std::int64_t>(resolution_.indexes.size());
  if (!resolution_.partition_found || !resolution_.gone.empty()) return false;
  for (const std::vector<Piece>& pieces : resolution_.piece_lists) {
    std::int64_t covered = 0;
    for (const Piece& piece : pieces) covered += piece.count;
    if (covered != rows) return false;
  }
  return true;
}

std::shared_ptr<void> Resolved::view_or_null(const Piece& piece, const CopyRange& source, ReadMode mode) {
  const auto block = static_cast<std::size_t>(piece.block);
  const auto offset = static_cast<std::uint64_t>(source.source - bytes_of(resolution_.blocks[block]));
  try {
    return view(block, offset, source.nbytes, mode == ReadMode::shared);
  } catch (const MappingLimitError&) {
    return nullptr;
  }
}

std::vector<Column> Resolved::read(std::span<const ColumnRequest> requests, ReadMode mode, std::uint64_t copy_below) {
  const OperationGuard operation;
  const Leases held = leases();
  std::vector<FieldInBlock> blocks = blocks_without_field(*held);
  std::vector<Column> columns(requests.size());
  std::vector<CopyRange> ranges;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const ColumnRequest& request = requests[i];
    const std::vector<Piece>& pieces = this->pieces(request.field);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      blocks[b].layout = resolution_.layouts[request.field][b].get();
      __builtin_prefetch(blocks[b].layout);
    }
    const std::size_t first = ranges.size();
    Column& column = columns[i];
    RowShape shape;
    if (request.kind == ColumnKind::ragged) {
      const std::size_t n_steps = resolution_.indexes.size() + 1;
      column.steps = std::make_shared_for_overwrite<std::int64_t[]>(n_steps);
      shape = append_ragged_sources(blocks, pieces, request.unit_nbytes, ranges, {column.steps.get(), n_steps});
    } else {
      shape = append_sources(blocks, pieces, request.kind == ColumnKind::dense ? request.unit_nbytes : 0, ranges);
    }
    column.nbytes = shape.nbytes;
    column.shortest = shape.shortest;
    column.longest = shape.longest;
    if (shape.nbytes == 0) continue;
    if (mode != ReadMode::copy && pieces.size() == 1 && shape.nbytes >= copy_below) {
      column.data = view_or_null(pieces[0], ranges[first], mode);
      column.viewed = column.data != nullptr;
      if (column.viewed) {
        ranges.pop_back();
        continue;
      }
    }
    const std::shared_ptr<std::byte> buffer = gather_buffer(shape.nbytes);
    std::byte* destination = buffer.get();
    for (std::size_t r = first; r < ranges.size(); ++r) {
      ranges[r].destination = destination;
      destination += ranges[r].nbytes;
    }
    column.data = buffer;
    TQ_PAUSE("copy.midway");  // addresses are known, bytes are not read yet: what only the leases keep true
  }
  copy_ranges(ranges);
  std::uint64_t viewed_nbytes = 0;
  std::uint64_t copied_nbytes = 0;
  for (const Column& column : columns) (column.viewed ? viewed_nbytes : copied_nbytes) += column.nbytes;
  count(viewed_nbytes, copied_nbytes);
  return columns;
}

}  // namespace tq
