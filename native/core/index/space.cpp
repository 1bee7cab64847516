#include "core/index/space.hpp"

#include <algorithm>

namespace tq::index {
namespace {

constexpr std::uint64_t rounded_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

constexpr std::uint64_t slot_nbytes = 8;  // of the block table

std::string number_value(std::uint64_t value) {
  Writer out;
  return std::string(out.number(value).view());
}

constexpr Table by_offset(bool spilled) { return spilled ? Table::spill_by_offset : Table::extents_by_offset; }
constexpr Table by_size(bool spilled) { return spilled ? Table::spill_by_size : Table::extents_by_size; }

// Bytes that nobody backed are nobody's: using them would end the process where the file system is full.
void check_backed(const WriteTxn& txn, Span span) {
  const std::uint64_t end = (span.spilled() ? txn.counters.spill : txn.counters).reserved_bytes;
  const std::uint64_t offset = span.spilled() ? span.offset - spill_base : span.offset;
  if (offset > end || span.nbytes > end - offset) corrupt("a span outside of what the segment has backed");
}

void add_free(WriteTxn& txn, Span span) {
  if (span.nbytes == 0) return;
  txn.put(Key(by_offset(span.spilled())).u64(span.offset), number_value(span.nbytes));
  txn.put(Key(by_size(span.spilled())).u64(span.nbytes).u64(span.offset), {});
  if (!span.spilled()) ++txn.counters.free_extents;
}

void remove_free(WriteTxn& txn, Span span) {
  txn.erase(Key(by_offset(span.spilled())).u64(span.offset));
  txn.erase(Key(by_size(span.spilled())).u64(span.nbytes).u64(span.offset));
  if (!span.spilled()) --txn.counters.free_extents;
}

Span free_span(const Cursor& cursor) { return {key_u64(cursor.tail(), 0), Reader(cursor.value()).number<std::uint64_t>()}; }

// The smallest free extent in which `nbytes` fit at a multiple of `alignment`.
std::optional<Span> best_fit(const WriteTxn& txn, Table table, std::uint64_t nbytes, std::uint64_t alignment) {
  Cursor cursor(txn, table);
  for (bool found = cursor.seek(Key(table).u64(nbytes).u64(0)); found; found = cursor.next()) {
    const Span span{key_u64(cursor.tail(), 8), key_u64(cursor.tail(), 0)};
    if (rounded_up(span.offset, alignment) - span.offset + nbytes <= span.nbytes) return span;
  }
  return std::nullopt;
}

// The free extent that holds all of `wanted`.
std::optional<Span> free_around(const WriteTxn& txn, Span wanted) {
  Cursor cursor(txn, Table::extents_by_offset);
  if (!cursor.last_before(Key(Table::extents_by_offset).u64(wanted.offset + 1))) return std::nullopt;
  const Span span = free_span(cursor);
  if (wanted.offset - span.offset > span.nbytes || wanted.nbytes > span.nbytes - (wanted.offset - span.offset)) return std::nullopt;
  return span;
}

void cut_out(WriteTxn& txn, Span free, Span taken) {
  check_backed(txn, free);
  remove_free(txn, free);
  add_free(txn, {free.offset, taken.offset - free.offset});
  add_free(txn, {taken.offset + taken.nbytes, free.offset + free.nbytes - (taken.offset + taken.nbytes)});
  txn.counters.region(taken).free_bytes -= taken.nbytes;
}

std::uint64_t& pending_count(WriteTxn& txn, const Span& span, bool ahead) {
  return ahead ? txn.counters.ahead_bytes : txn.counters.region(span).pending_bytes;
}

Key pending_key(OwnerId owner, std::uint64_t offset) { return Key(Table::pending).u64(owner).u64(offset); }
Key retired_key(BlockRef ref) { return Key(Table::retired).u64(ref.word); }

void add_retired(WriteTxn& txn, BlockRef ref, const RetiredRecord& record) {
  txn.put(retired_key(ref), record.encode());
  txn.counters.region(record.span).retired_bytes += record.span.nbytes;
}

}  // namespace

std::uint64_t span_nbytes(std::uint64_t nbytes) {
  // A block of no bytes (all its fields have zero elements) still gets a span of its own: spans tell blocks apart.
  return std::max(rounded_up(nbytes, span_unit(nbytes)), small_nbytes);
}

std::optional<Span> take_extent(WriteTxn& txn, std::uint64_t nbytes, std::span<const std::uint64_t> preferred,
                                Region region) {
  if (nbytes > ~std::uint64_t{0} - 2 * page_nbytes) return std::nullopt;
  const std::uint64_t unit = span_unit(nbytes);
  nbytes = span_nbytes(nbytes);
  for (const std::uint64_t offset : preferred) {
    const Span wanted{offset, nbytes};
    if (offset % unit != 0) continue;
    if (const auto free = free_around(txn, wanted)) {
      cut_out(txn, *free, wanted);
      return wanted;
    }
  }
  const auto found = best_fit(txn, by_size(region == Region::spill), nbytes, unit);
  if (!found) return std::nullopt;
  const Span taken{rounded_up(found->offset, unit), nbytes};
  cut_out(txn, *found, taken);
  return taken;
}

std::optional<Span> take_extent_from(WriteTxn& txn, std::uint64_t offset, std::uint64_t nbytes) {
  if (nbytes > ~std::uint64_t{0} - 2 * page_nbytes) return std::nullopt;
  const Span wanted{span_begin(offset, nbytes), span_nbytes(nbytes)};
  const auto free = free_around(txn, wanted);
  if (!free) return std::nullopt;
  cut_out(txn, *free, wanted);
  return wanted;
}

void take_span(WriteTxn& txn, Span span) {
  const auto free = free_around(txn, span);
  if (!free) corrupt("bytes that are not free are taken");
  cut_out(txn, *free, span);
}

std::optional<Span> take_headroom(WriteTxn& txn, std::uint64_t nbytes) {
  Counters& counters = txn.counters;
  if (nbytes > counters.headroom_bytes) return std::nullopt;
  nbytes = std::max(rounded_up(nbytes, page_nbytes), page_nbytes);
  if (nbytes > counters.headroom_bytes - counters.headroom_end) return std::nullopt;
  const Span taken{counters.headroom_begin + counters.headroom_end, nbytes};
  counters.headroom_end += nbytes;
  counters.headroom_taken += nbytes;
  return taken;
}

void give_extent(WriteTxn& txn, Span span) {
  if (span.nbytes == 0) return;
  if (in_headroom(txn.counters, span)) {
    if (span.nbytes > txn.counters.headroom_taken) corrupt("more headroom is given back than was taken");
    txn.counters.headroom_taken -= span.nbytes;
    if (txn.counters.headroom_taken == 0) txn.counters.headroom_end = 0;
    return;
  }
  check_backed(txn, span);
  txn.counters.region(span).free_bytes += span.nbytes;
  std::optional<Span> right;
  std::optional<Span> left;
  {
    const Table table = by_offset(span.spilled());
    Cursor cursor(txn, table);
    const Key key = Key(table).u64(span.offset);
    if (cursor.seek(key)) right = free_span(cursor);
    if (cursor.last_before(key)) left = free_span(cursor);
  }
  if ((right && right->offset < span.offset + span.nbytes) || (left && left->offset + left->nbytes > span.offset)) {
    corrupt("a freed span overlaps a free one");
  }
  if (right && right->offset == span.offset + span.nbytes) {
    remove_free(txn, *right);
    span.nbytes += right->nbytes;
  }
  if (left && left->offset + left->nbytes == span.offset) {
    remove_free(txn, *left);
    span = {left->offset, left->nbytes + span.nbytes};
  }
  add_free(txn, span);
}

std::uint32_t take_slot(WriteTxn& txn, std::uint32_t max_slots) {
  std::optional<std::uint32_t> slot;
  {
    Cursor cursor(txn, Table::free_slots);
    if (cursor.seek(Key(Table::free_slots))) slot = key_u32(cursor.tail(), 0);
  }
  if (slot) {
    if (*slot >= txn.counters.next_slot) corrupt("a free slot that never was one");
    txn.erase(Key(Table::free_slots).u32(*slot));
    return *slot;
  }
  if (txn.counters.next_slot >= max_slots) {
    Error error(ErrorCode::index_full, "all " + std::to_string(max_slots) +
                                           " blocks that the session can hold are in use; clear rows that are no longer needed, "
                                           "or put more rows at a time (a put is one block)");
    error.resource = "block table";
    error.figures = {{"used", max_slots * slot_nbytes}, {"free", 0}, {"wanted", slot_nbytes}, {"total", max_slots * slot_nbytes}};
    throw error;
  }
  return static_cast<std::uint32_t>(txn.counters.next_slot++);
}

void give_slot(WriteTxn& txn, std::uint32_t slot) {
  if (slot >= txn.counters.next_slot) corrupt("a block in a slot that never was one");
  txn.put(Key(Table::free_slots).u32(slot), {});
}

void add_pending(WriteTxn& txn, OwnerId owner, const Reservation& reservation, bool ahead) {
  Writer out;
  out.number(reservation.span.nbytes).number(reservation.block.word).number(static_cast<std::uint8_t>(ahead));
  txn.put(pending_key(owner, reservation.span.offset), out.view());
  pending_count(txn, reservation.span, ahead) += reservation.span.nbytes;
}

bool take_pending(WriteTxn& txn, OwnerId owner, const Reservation& reservation) {
  const Key key = pending_key(owner, reservation.span.offset);
  const auto value = txn.get(key);
  if (!value) return false;
  Reader in(*value);
  const auto nbytes = in.number<std::uint64_t>();
  if (nbytes != reservation.span.nbytes || in.number<std::uint64_t>() != reservation.block.word) return false;
  const bool ahead = in.number<std::uint8_t>() != 0;
  txn.erase(key);
  pending_count(txn, reservation.span, ahead) -= nbytes;
  return true;
}

std::vector<Reservation> pending_of(const Txn& txn, OwnerId owner) {
  std::vector<Reservation> list;
  Cursor cursor(txn, Table::pending);
  for (bool found = cursor.seek(pending_key(owner, 0)); found && key_u64(cursor.tail(), 0) == owner; found = cursor.next()) {
    Reader in(cursor.value());
    const Span span{key_u64(cursor.tail(), 8), in.number<std::uint64_t>()};
    list.push_back({span, BlockRef{in.number<std::uint64_t>()}});
  }
  return list;
}

void give_back(WriteTxn& txn, const Reservation& reservation) {
  give_extent(txn, reservation.span);
  give_slot(txn, reservation.block.slot());
}

LiveCells::Removed LiveCells::apply(WriteTxn& txn, std::string_view partition) {
  std::sort(removed_.begin(), removed_.end());
  Removed all;
  Writer out;
  for (std::size_t i = 0; i < removed_.size();) {
    const BlockRef ref{removed_[i].first};
    std::uint64_t cells = 0;
    for (; i < removed_.size() && removed_[i].first == ref.word; ++i) cells += removed_[i].second;
    const Key key = Key(Table::blocks).u64(ref.word);
    const auto value = txn.get(key);
    if (!value) corrupt("a cell names a block that is not there");
    BlockRecord record = BlockRecord::parse(*value);
    if (record.live_cells < cells) corrupt("a block loses more cells than it has");
    const std::uint64_t live_before = record.live_bytes();
    const auto elsewhere_before = record.elsewhere_bytes;
    record.remove_cells(cells);
    const std::uint64_t gone = live_before - record.live_bytes();
    all.held_bytes += elsewhere_before ? *elsewhere_before - *record.elsewhere_bytes : gone;
    all.elsewhere = all.elsewhere || elsewhere_before;
    RegionBytes& region = txn.counters.region(record.span);
    region.live_bytes -= gone;
    if (record.live_cells == 0) {
      const std::uint32_t n_fields = BlockRecord::n_fields(BlockRecord::layout_bytes(*value));
      txn.erase(key);
      region.used_bytes -= record.span.nbytes;
      add_retired(txn, ref, {record.span, record.n_rows, n_fields, std::string(partition)});
      all.retired.push_back(ref);
    } else {
      out.clear();
      record.encode_to(out);
      out.bytes(BlockRecord::layout_bytes(*value));
      txn.put(key, out.view());
    }
  }
  removed_.clear();
  return all;
}

void add_block(WriteTxn& txn, BlockRef ref, const BlockRecord& record, std::string_view layouts, std::string_view partition) {
  if (record.live_cells == 0) {
    return add_retired(txn, ref, {record.span, record.n_rows, BlockRecord::n_fields(layouts), std::string(partition)});
  }
  Writer out;
  record.encode_to(out);
  txn.put(Key(Table::blocks).u64(ref.word), out.bytes(layouts).view());
  RegionBytes& region = txn.counters.region(record.span);
  region.used_bytes += record.span.nbytes;
  region.live_bytes += record.live_bytes();
}

bool move_block(WriteTxn& txn, BlockRef from, const Reservation& to) {
  const auto value = txn.get(Key(Table::blocks).u64(from.word));
  if (!value) return false;
  BlockRecord record = BlockRecord::parse(*value);
  const Span old = record.span;
  if (old.nbytes != to.span.nbytes) corrupt("a block moves to a place of another size");
  const std::string layouts(BlockRecord::layout_bytes(*value));
  RegionBytes& region = txn.counters.region(old);
  region.used_bytes -= old.nbytes;
  region.live_bytes -= record.live_bytes();
  // As it will be called in reports: that of a partition which is being cleared stands on the list of the doomed.
  std::string partition;
  if (const auto stands = txn.get(Key(Table::partitions).u32(record.partition))) {
    partition = PartitionRecord::parse(*stands).name;
  } else if (const auto doomed = txn.get(Key(Table::doomed_partitions).u32(record.partition))) {
    partition = *doomed;
  }
  txn.erase(Key(Table::blocks).u64(from.word));
  add_retired(txn, from, {old, record.n_rows, BlockRecord::n_fields(layouts), partition});
  record.span = to.span;
  add_block(txn, to.block, record, layouts, partition);
  return true;
}

Span block_span(const Txn& txn, BlockRef ref) {
  if (const auto value = txn.get(Key(Table::blocks).u64(ref.word))) return BlockRecord::parse(*value).span;
  if (const auto value = txn.get(retired_key(ref))) return RetiredRecord::parse(*value).span;
  return {};
}

Index::BlockFacts block_facts(const Txn& txn, BlockRef ref) {
  Index::BlockFacts facts;
  if (const auto value = txn.get(Key(Table::blocks).u64(ref.word))) {
    const BlockRecord record = BlockRecord::parse(*value);
    facts = {Index::BlockFacts::State::live, record.span, record.n_rows,
             BlockRecord::n_fields(BlockRecord::layout_bytes(*value)), record.live_bytes(), {}};
    if (const auto partition = txn.get(Key(Table::partitions).u32(record.partition))) {
      facts.partition = PartitionRecord::parse(*partition).name;
    } else if (const auto doomed = txn.get(Key(Table::doomed_partitions).u32(record.partition))) {
      facts.partition = *doomed;
      facts.live_nbytes = 0;  // cleared, and not yet removed
    }
  } else if (const auto retired = txn.get(retired_key(ref))) {
    RetiredRecord record = RetiredRecord::parse(*retired);
    facts = {Index::BlockFacts::State::retired, record.span, record.n_rows, record.n_fields, 0, std::move(record.partition)};
  }
  return facts;
}

std::vector<BlockRef> list_retired(const Txn& txn) {
  std::vector<BlockRef> list;
  Cursor cursor(txn, Table::retired);
  for (bool found = cursor.seek(Key(Table::retired)); found; found = cursor.next()) {
    list.push_back(BlockRef{key_u64(cursor.tail(), 0)});
  }
  return list;
}

std::uint64_t free_retired_block(WriteTxn& txn, BlockRef ref) {
  const auto value = txn.get(retired_key(ref));
  if (!value) return 0;
  const Span span = RetiredRecord::parse(*value).span;
  txn.erase(retired_key(ref));
  txn.counters.region(span).retired_bytes -= span.nbytes;
  give_extent(txn, span);
  give_slot(txn, ref.slot());
  return span.nbytes;
}

}  // namespace tq::index
