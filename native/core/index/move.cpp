// Publication of rows that were rewritten elsewhere (coalesce, compaction): compare-and-set, cell by cell. A put that came
// in between wins.
#include "core/index/impl.hpp"
#include "core/pause.hpp"

namespace tq {
namespace {

using namespace index;

// Where the source said that a field's rows lie: from `position` on, `count` rows, in `block` from `block_row` on.
struct Expected {
  FieldId field;
  const std::vector<Piece>* pieces;
};

class Move {
 public:
  Move(Index::Impl& impl, const Resolution& source, const std::vector<FieldLayout>& fields)
      : impl_(impl), source_(source), fields_(fields) {}

  Index::MoveResult run(WriteTxn& txn, const Reservation& reservation, OwnerId owner) {
    Index::MoveResult result;
    if (!take_pending(txn, owner, reservation)) {
      throw Error(ErrorCode::invalid, "the space reserved for this move is no longer its own: it was abandoned, published or "
                                      "reclaimed before; reserve anew");
    }
    auto record = partition_by_id(txn, source_.partition_id);
    if (!record || !expect(txn)) {
      give_back(txn, reservation);  // the partition was cleared meanwhile
      return result;
    }
    Partition partition{source_.partition_id, std::move(*record)};
    const std::vector<Segment> segments = segments_of_constant_source();
    LiveCells live;
    RunRewriter rewriter(txn, partition.id, live);
    const RewriteResult met = rewriter.plan(
        segments, reservation.block, [&](const RunView& run, std::int64_t offset, const Segment& segment, std::int64_t at) {
          return unchanged(run, offset, segment.block_row + at);
        });
    if (met.cells_taken == 0) {
      give_back(txn, reservation);
      return result;
    }
    rewriter.apply();
    LiveCells::Removed removed = live.apply(txn, partition.record.name);
    result.retired = std::move(removed.retired);
    BlockRecord block;
    block.span = reservation.span;
    block.n_rows = source_.indexes.size();
    block.cells = block.n_rows * fields_.size();
    block.live_cells = met.cells_taken;
    block.partition = partition.id;
    // Of names of payload their bytes say nothing: what they stand for comes with them, and so does what moves beside them.
    if (removed.elsewhere) block.elsewhere_bytes = removed.held_bytes;
    add_block(txn, reservation.block, block, encode_layouts(fields_, ids_), partition.record.name);
    partition.record.live_bytes += block.held_bytes();
    partition.record.live_bytes -= removed.held_bytes;
    store_partition(txn, partition);
    result.moved = static_cast<std::int64_t>(met.cells_taken);
    return result;
  }

 private:
  // What the source says about the fields that move; false when the session does not know one of them.
  bool expect(const Txn& txn) {
    for (const FieldLayout& field : fields_) {
      const auto at = std::find(source_.fields.begin(), source_.fields.end(), field.name);
      if (at == source_.fields.end()) {
        throw Error(ErrorCode::invalid, "field '" + field.name + "' is moved but was not read from the source");
      }
      const auto id = impl_.caches->fields.id(txn, field.name);
      if (!id) return false;
      ids_.push_back(*id);
      expected_.push_back({*id, &source_.piece_lists[source_.field_pieces[static_cast<std::size_t>(at - source_.fields.begin())]]});
    }
    std::sort(expected_.begin(), expected_.end(), [](const Expected& a, const Expected& b) { return a.field < b.field; });
    return true;
  }

  // Segments within which every field stays in one piece of the source, so that one comparison decides for all rows.
  std::vector<Segment> segments_of_constant_source() const {
    std::vector<std::int64_t> cuts;
    for (const Expected& expected : expected_) {
      for (const Piece& piece : *expected.pieces) {
        cuts.push_back(piece.first);
        cuts.push_back(piece.first + piece.count);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<Segment> pieces;
    for (Segment segment : make_segments(source_.indexes, true)) {
      auto cut = std::upper_bound(cuts.begin(), cuts.end(), segment.block_row);
      for (; cut != cuts.end() && *cut < segment.block_row + segment.count; ++cut) {
        const std::int64_t front = *cut - segment.block_row;
        pieces.push_back({segment.row, front, segment.block_row, 0});
        segment = {segment.row + front, segment.count - front, *cut, 0};
      }
      pieces.push_back(segment);
    }
    return pieces;
  }

  // The fields whose cells at `offset` of the run are the ones that the source had at `position`.
  const std::vector<FieldId>* unchanged(const RunView& run, std::int64_t offset, std::int64_t position) {
    taken_.clear();
    run.for_each([&](BlockRef ref, std::uint32_t block_row, std::size_t n_fields, const char* in_run) {
      for (std::size_t i = 0; i < n_fields; ++i) {
        const FieldId id = field_at(in_run, i);
        const auto at = std::lower_bound(expected_.begin(), expected_.end(), id,
                                         [](const Expected& expected, FieldId field) { return expected.field < field; });
        if (at == expected_.end() || at->field != id) continue;
        const Piece* piece = piece_at(*at->pieces, position);
        if (piece == nullptr || !(source_.blocks[static_cast<std::size_t>(piece->block)].ref == ref)) continue;
        if (piece->block_row + (position - piece->first) == block_row + offset) taken_.push_back(id);
      }
    });
    std::sort(taken_.begin(), taken_.end());
    return &taken_;
  }

  static const Piece* piece_at(const std::vector<Piece>& pieces, std::int64_t position) {
    auto after = std::upper_bound(pieces.begin(), pieces.end(), position,
                                  [](std::int64_t value, const Piece& piece) { return value < piece.first; });
    if (after == pieces.begin()) return nullptr;
    --after;
    return position < after->first + after->count ? &*after : nullptr;
  }

  Index::Impl& impl_;
  const Resolution& source_;
  const std::vector<FieldLayout>& fields_;
  std::vector<FieldId> ids_;  // in the order of fields_
  std::vector<Expected> expected_;  // ascending by field
  std::vector<FieldId> taken_;
};

}  // namespace

Index::MoveResult Index::publish_moved(const Resolution& source, const Reservation& reservation, OwnerId owner,
                                       const std::vector<FieldLayout>& fields) {
  const auto n_rows = static_cast<std::int64_t>(source.indexes.size());
  if (fields.empty() || fields.size() > max_block_fields || n_rows > max_run_rows) {
    throw Error(ErrorCode::invalid, "a move of " + std::to_string(n_rows) + " rows and " + std::to_string(fields.size()) + " fields");
  }
  check_layouts(fields, reservation.span.nbytes, n_rows);
  return impl_->write_asked(Room::put, [&](WriteTxn& txn) {
    MoveResult result = Move(*impl_, source, fields).run(txn, reservation, owner);
    TQ_PAUSE("index.publish.before_commit");
    return result;
  });
}

}  // namespace tq
