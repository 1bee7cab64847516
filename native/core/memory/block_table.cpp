#include "core/memory/block_table.hpp"

#include <algorithm>
#include <new>

#include "core/error.hpp"

namespace tq {

using layout::max_slots;
using layout::SegmentKind;
using layout::table_step_slots;
using layout::TableLayout;

namespace {

constexpr std::uint64_t table_bytes = (layout::table_uses_offset + std::uint64_t{max_slots} * 4 + 65535) / 65536 * 65536;

constexpr std::uint64_t make_word(BlockRef block, BlockState state) {
  return block.generation() << BlockRef::slot_bits | static_cast<std::uint64_t>(state);
}

}  // namespace

void BlockTable::format(int fd, const std::string& session) {
  const std::string name = segment_name(SegmentKind::table, session);
  resize_file(fd, table_bytes, name);
  if (!back_range(fd, 0, sizeof(TableLayout) + table_step_slots * 8, name) ||
      !back_range(fd, layout::table_uses_offset, table_step_slots * 4, name)) {
    throw Error(ErrorCode::storage_full, "no room for the " + name);
  }
  const SharedMapping mapping(fd, 0, sizeof(TableLayout), Access::read_write, name);
  auto* table = new (mapping.data()) TableLayout();
  table->backed_slots.value.store(table_step_slots, std::memory_order_relaxed);  // published by the magic
  write_header(table->header, SegmentKind::table, session, table_bytes);
}

BlockTable::BlockTable(int fd, const std::string& session)
    : name_(segment_name(SegmentKind::table, session)), fd_(FileDescriptor::duplicate(fd)) {
  check_header(fd_.get(), SegmentKind::table, session, table_bytes);
  mapping_ = SharedMapping(fd_.get(), 0, table_bytes, Access::read_write, name_);
}

void BlockTable::ensure(BlockRef block) {
  if (word(block) != nullptr) return;
  auto& backed = at().backed_slots.value;
  const std::uint64_t begin = backed.load(std::memory_order_acquire);
  const std::uint64_t wanted = (std::uint64_t{block.slot()} / table_step_slots + 1) * table_step_slots;
  if (wanted <= begin) return;  // another thread or process did it meanwhile
  if (wanted > max_slots || !back_range(fd_.ours(name_), sizeof(TableLayout) + begin * 8, (wanted - begin) * 8, name_) ||
      !back_range(fd_.get(), layout::table_uses_offset + begin * 4, (wanted - begin) * 4, name_)) {
    Error error(ErrorCode::index_full, wanted > max_slots ? "all " + std::to_string(max_slots) + " block slots are in use"
                                                          : "the file system has no room to extend the " + name_);
    error.resource = "block table";
    error.figures = {{"used", begin * 8}, {"free", 0}, {"wanted", (wanted - begin) * 8}, {"total", std::uint64_t{max_slots} * 8}};
    throw error;
  }
  // Release: whoever sees the mark may touch the words. A race leaves the larger one.
  std::uint64_t seen = begin;
  while (seen < wanted && !backed.compare_exchange_weak(seen, wanted, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

std::atomic<std::uint64_t>* BlockTable::word(BlockRef block) const noexcept {
  // The bound is re-read from shared memory and clamped: a damaged mark must not lead outside the mapping.
  const std::uint64_t backed = std::min<std::uint64_t>(at().backed_slots.value.load(std::memory_order_acquire), max_slots);
  if (block.slot() >= backed) return nullptr;
  return reinterpret_cast<std::atomic<std::uint64_t>*>(mapping_.data() + sizeof(TableLayout)) + block.slot();
}

void BlockTable::set_live(BlockRef block) {
  std::atomic<std::uint64_t>* at_word = word(block);
  if (at_word == nullptr) throw Error(ErrorCode::invalid, "slot " + std::to_string(block.slot()) + " is not backed: ensure first");
  at_word->store(make_word(block, BlockState::live), std::memory_order_release);
}

bool BlockTable::set_retired(BlockRef block) noexcept {
  std::atomic<std::uint64_t>* at_word = word(block);
  if (at_word == nullptr) return false;
  std::uint64_t expected = make_word(block, BlockState::live);
  // When it fails because another process retired the block, this load has read that process's word, so our fence (retire.hpp)
  // is ordered after it and the argument of lease.hpp holds for us as for it.
  return at_word->compare_exchange_strong(expected, make_word(block, BlockState::retired), std::memory_order_seq_cst) ||
         expected == make_word(block, BlockState::retired);
}

bool BlockTable::set_free(BlockRef block) noexcept {
  std::atomic<std::uint64_t>* at_word = word(block);
  if (at_word == nullptr) return false;
  for (const BlockState from : {BlockState::retired, BlockState::live}) {
    std::uint64_t expected = make_word(block, from);
    if (at_word->compare_exchange_strong(expected, make_word(block, BlockState::free), std::memory_order_seq_cst)) return true;
  }
  return false;
}

BlockState BlockTable::state(BlockRef block) const noexcept {
  const std::atomic<std::uint64_t>* at_word = word(block);
  if (at_word == nullptr) return BlockState::free;
  const std::uint64_t value = at_word->load(std::memory_order_acquire);
  if (value == make_word(block, BlockState::live)) return BlockState::live;
  return value == make_word(block, BlockState::retired) ? BlockState::retired : BlockState::free;
}

std::atomic<std::uint32_t>* BlockTable::use(BlockRef block) const noexcept {
  if (word(block) == nullptr) return nullptr;
  return reinterpret_cast<std::atomic<std::uint32_t>*>(mapping_.data() + layout::table_uses_offset) + block.slot();
}

void BlockTable::note_use(BlockRef block, std::uint32_t when) noexcept {
  std::atomic<std::uint32_t>* last = use(block);
  // A line that many readers share is written only when time went on: else each get would take it from the others.
  if (last != nullptr && last->load(std::memory_order_relaxed) != when) last->store(when, std::memory_order_relaxed);
}

std::uint32_t BlockTable::last_use(BlockRef block) const noexcept {
  const std::atomic<std::uint32_t>* last = use(block);
  return last == nullptr ? 0 : last->load(std::memory_order_relaxed);
}

bool BlockTable::is_live(BlockRef block) const noexcept { return state(block) == BlockState::live; }

}  // namespace tq
