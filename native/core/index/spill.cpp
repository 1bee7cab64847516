// Whole blocks moved to the spill file: the index's side. Store::spill (store/spill.cpp) copies the bytes.
//
// A move is published by compare-and-set on the ref: every cell that names the old block gets the new block's ref, in one
// transaction. Why this needs no look at rows, fields or versions:
//  * A block is immutable and a ref is never used again, so a cell that still names the old ref means the very bytes that were
//    copied. A put, clear, coalesce or load in between made its cells name something else, which this leaves alone; if it took
//    the block's last cell, the block is not published any more and the move is dropped.
//  * Rows never begin to name a block after the transaction that published it (publish, publish_moved, replace and this one
//    name only a block that they publish themselves). So the rows found before the transaction are all that can name it, and the
//    count of live cells in its record is checked against what was found: were the argument wrong, nothing would be committed.
//  * The block's record goes over as it is, live cells included; only ref and span differ.
// Readers see either all of it or nothing. Who resolved before it holds the old ref: its lease keeps the old bytes, or, when the
// old block was retired before the lease stood, the look at the block's word says so and the resolve starts over.
// The partition's version is not bumped: nothing that a reader could see has changed, so nobody is woken.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "core/index/impl.hpp"
#include "core/pause.hpp"

namespace tq {
namespace {

using namespace index;

constexpr std::size_t runs_a_look = 4096;      // of one read transaction: about a millisecond
constexpr std::size_t blocks_a_look = 16384;  // the same

// A run as it will be written.
struct NewRun {
  PartitionId partition;
  RowIndex start;
  std::string record;
};

class Renaming {
 public:
  explicit Renaming(const std::unordered_map<std::uint64_t, std::uint64_t>& refs) : refs_(refs) {}

  // Reads; what is to be written is kept, since a write would move the pages that are read.
  void plan(const Txn& txn, const std::vector<Index::RowStretch>& rows) {
    PartitionId partition = 0;
    RowIndex done = 0;  // of that partition, all runs that start below are planned
    for (const Index::RowStretch& stretch : rows) {
      if (stretch.partition != partition) done = 0;
      partition = stretch.partition;
      RunCursor cursor(txn, partition);
      const RowIndex end = stretch.first + stretch.count;
      for (RowIndex row = std::max(stretch.first, done); row < end && cursor.seek(row) && cursor.run().start < end;) {
        rename(partition, cursor.run());
        row = done = cursor.run().end();
      }
    }
  }

  void apply(WriteTxn& txn) const {
    for (const NewRun& run : runs_) txn.put(Key(Table::runs).u32(run.partition).row(run.start), run.record);
  }

  // Cells that named the block.
  std::uint64_t cells(BlockRef from) const {
    const auto at = cells_.find(from.word);
    return at == cells_.end() ? 0 : at->second;
  }

 private:
  struct Entry {
    std::uint64_t ref;
    std::uint32_t block_row;
    std::string_view fields;
  };

  void rename(PartitionId partition, const RunView& run) {
    entries_.clear();
    bool changed = false;
    run.for_each([&](BlockRef ref, std::uint32_t block_row, std::size_t n_fields, const char* fields) {
      const auto at = refs_.find(ref.word);
      if (at != refs_.end()) {
        changed = true;
        cells_[ref.word] += n_fields * static_cast<std::uint64_t>(run.count);
      }
      entries_.push_back({at == refs_.end() ? ref.word : at->second, block_row, {fields, n_fields * sizeof(FieldId)}});
    });
    if (!changed) return;
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.ref < b.ref; });
    out_.clear();
    out_.number(static_cast<std::uint32_t>(run.count)).number(static_cast<std::uint16_t>(entries_.size()));
    for (const Entry& entry : entries_) {
      out_.number(entry.ref).number(entry.block_row).number(static_cast<std::uint16_t>(entry.fields.size() / sizeof(FieldId)));
      out_.bytes(entry.fields);
    }
    runs_.push_back({partition, run.start, std::string(out_.view())});
  }

  const std::unordered_map<std::uint64_t, std::uint64_t>& refs_;
  std::unordered_map<std::uint64_t, std::uint64_t> cells_;
  std::vector<NewRun> runs_;
  std::vector<Entry> entries_;
  Writer out_;
};

}  // namespace

void Index::grow_spill(std::uint64_t new_reserved_bytes) {
  if (new_reserved_bytes > impl_->format.spill_bytes) {
    throw Error(ErrorCode::invalid, "the spill file cannot be backed up to " + std::to_string(new_reserved_bytes) +
                                        " bytes; it has " + std::to_string(impl_->format.spill_bytes));
  }
  impl_->write(Room::release, [&](WriteTxn& txn) {
    const std::uint64_t reserved = txn.counters.spill.reserved_bytes;
    if (new_reserved_bytes > reserved) {
      txn.counters.spill.reserved_bytes = new_reserved_bytes;
      give_extent(txn, {spill_base + reserved, new_reserved_bytes - reserved});
    }
    return true;
  });
}

std::vector<Index::PlacedBlock> Index::blocks_in_memory() {
  std::vector<PlacedBlock> found;
  std::unordered_map<PartitionId, bool> stands;
  std::uint64_t next = 0;
  for (bool more = true; more;) {
    const ReadTxn txn(*impl_->env);
    const auto counters_value = txn.get(Key(Table::counters));
    if (!counters_value) corrupt("the counters are missing");
    const Counters counters = Counters::parse(*counters_value);
    stands.clear();
    Cursor cursor(txn, Table::blocks);
    std::size_t looked = 0;
    more = cursor.seek(Key(Table::blocks).u64(next));
    for (; more && looked < blocks_a_look; more = cursor.next(), ++looked) {
      const BlockRef ref{key_u64(cursor.tail(), 0)};
      next = ref.word + 1;
      const BlockRecord record = BlockRecord::parse(cursor.value());
      // What lies in the headroom of compaction is no room for puts, and goes back by itself.
      if (record.span.spilled() || in_headroom(counters, record.span)) continue;
      const auto [at, fresh] = stands.emplace(record.partition, false);
      if (fresh) at->second = partition_by_id(txn, record.partition).has_value();
      if (at->second) found.push_back({ref, record.span, record.partition});
    }
  }
  return found;
}

std::vector<Span> Index::free_in_memory() {
  const ReadTxn txn(*impl_->env);
  std::vector<Span> spans;
  Cursor cursor(txn, Table::extents_by_offset);
  for (bool found = cursor.seek(Key(Table::extents_by_offset)); found; found = cursor.next()) {
    spans.push_back({key_u64(cursor.tail(), 0), Reader(cursor.value()).number<std::uint64_t>()});
  }
  return spans;
}

std::vector<std::vector<Index::RowStretch>> Index::rows_naming(const std::vector<PlacedBlock>& blocks) {
  std::vector<std::vector<RowStretch>> rows(blocks.size());
  std::unordered_map<std::uint64_t, std::size_t> numbers;
  std::vector<PartitionId> partitions;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    numbers.emplace(blocks[b].ref.word, b);
    partitions.push_back(blocks[b].partition);
  }
  std::sort(partitions.begin(), partitions.end());
  partitions.erase(std::unique(partitions.begin(), partitions.end()), partitions.end());
  for (const PartitionId partition : partitions) {
    RowIndex next = 0;
    for (bool more = true; more;) {
      const ReadTxn txn(*impl_->env);
      RunCursor cursor(txn, partition);
      std::size_t looked = 0;
      more = cursor.seek(next);
      for (; more && looked < runs_a_look; more = cursor.next(), ++looked) {
        const RunView& run = cursor.run();
        next = run.end();
        run.for_each([&](BlockRef ref, std::uint32_t, std::size_t, const char*) {
          const auto at = numbers.find(ref.word);
          if (at == numbers.end()) return;
          std::vector<RowStretch>& of_block = rows[at->second];
          if (!of_block.empty() && of_block.back().first + of_block.back().count == run.start) {
            of_block.back().count += run.count;
          } else {
            of_block.push_back({partition, run.start, run.count});
          }
        });
      }
    }
  }
  return rows;
}

std::vector<std::optional<Reservation>> Index::reserve_spill(const std::vector<std::uint64_t>& sizes, OwnerId owner) {
  return impl_->write(Room::put, [&](WriteTxn& txn) {
    std::vector<std::optional<Reservation>> places(sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto span = take_extent(txn, sizes[i], {}, Region::spill);
      if (!span) continue;
      const std::uint32_t slot = take_slot(txn, impl_->format.max_slots);
      places[i] = Reservation{*span, BlockRef::make(txn.counters.next_generation++, slot)};
      add_pending(txn, owner, *places[i]);
    }
    TQ_PAUSE("index.reserve.before_commit");
    return places;
  });
}

void Index::publish_spilled(std::vector<BlockMove>& moves, const std::vector<RowStretch>& rows, OwnerId owner) {
  std::vector<RowStretch> ascending = rows;
  std::sort(ascending.begin(), ascending.end(), [](const RowStretch& a, const RowStretch& b) {
    return a.partition != b.partition ? a.partition < b.partition : a.first < b.first;
  });
  impl_->write(Room::put, [&](WriteTxn& txn) {
    std::unordered_map<std::uint64_t, std::uint64_t> refs;
    std::unordered_map<std::uint64_t, std::uint64_t> live_cells;
    for (BlockMove& move : moves) {
      move.moved = false;
      if (!take_pending(txn, owner, move.to)) {
        throw Error(ErrorCode::invalid, "a place in the spill file is no longer its own: it was reclaimed before");
      }
      const auto value = txn.get(Key(Table::blocks).u64(move.from.word));
      if (!value) {
        give_back(txn, move.to);  // cleared, overwritten or moved meanwhile
        continue;
      }
      move.moved = true;
      refs.emplace(move.from.word, move.to.block.word);
      live_cells.emplace(move.from.word, BlockRecord::parse(*value).live_cells);
    }
    Renaming renaming(refs);
    renaming.plan(txn, ascending);
    for (const auto& [from, cells] : live_cells) {
      if (renaming.cells(BlockRef{from}) != cells) corrupt("rows that name a block were not found where they were before");
    }
    renaming.apply(txn);
    for (const BlockMove& move : moves) {
      if (move.moved) move_block(txn, move.from, move.to);
    }
    TQ_PAUSE("index.spill.before_commit");
    return true;
  });
}

}  // namespace tq
