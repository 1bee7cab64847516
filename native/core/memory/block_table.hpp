// The block table: for every slot, which incarnation of a block lives there and whether readers may use it.
//
//   word = generation << 24 | state            free -> live -> retired -> free,  generations never repeat
//
// Who may write a word:
//  * set_live: the owner of a reservation, alone, between `index.reserve` (or instead of the commit) and the commit. A store.
//  * set_retired, set_free: anybody, any number of times, any time later. Compare-and-swap from the exact earlier word, so
//    that a process which was stopped for an hour cannot touch a later incarnation (generations do not repeat: no ABA).
//
// Edges:
//  * bytes of a block -> its readers: the producer copies, then set_live stores with release; a reader uses bytes only after
//    `is_live` loaded that very word with acquire. LMDB's commit need not order anything for us.
//  * last uses: a word a slot beside it, of whoever used the slot's block last, in units of time (spill.hpp). Anybody stores it,
//    relaxed: it is a hint for choosing what to spill, and one that is stale or of the slot's last block chooses a little worse.
//  * lease against retire (Dekker): see lease.hpp (the reader's half) and retire.hpp (the other half).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "core/memory/segment.hpp"
#include "core/types.hpp"

namespace tq {

enum class BlockState : std::uint8_t { free = 0, live = 1, retired = 2 };

class BlockTable {
 public:
  static void format(int fd, const std::string& session);  // 48 MiB of virtual size, one step backed
  BlockTable(int fd, const std::string& session);          // duplicates the descriptor

  // Backs the table up to this slot. Call it before set_live of a slot fresh from `index.reserve`; cheap when already done.
  // Error(index_full) beyond max_slots or when the file system has no room. Two processes may do it at once: posix_fallocate
  // is idempotent, and the mark only grows.
  void ensure(BlockRef block);

  // Release: the block's bytes, written before, are visible to whoever sees the word.
  void set_live(BlockRef block);  // Error(invalid): the slot was never ensured
  // True when the word is now (generation, retired), whoever wrote it. False: another incarnation, or never live.
  bool set_retired(BlockRef block) noexcept;
  // From live or retired of this generation. False when it was neither.
  bool set_free(BlockRef block) noexcept;

  // Acquire. A slot beyond the backed part was never live.
  bool is_live(BlockRef block) const noexcept;
  BlockState state(BlockRef block) const noexcept;  // free when the slot holds another generation

  void note_use(BlockRef block, std::uint32_t when) noexcept;
  std::uint32_t last_use(BlockRef block) const noexcept;  // of whatever block had the slot; 0: never

 private:
  std::atomic<std::uint64_t>* word(BlockRef block) const noexcept;  // null: beyond the backed part
  std::atomic<std::uint32_t>* use(BlockRef block) const noexcept;  // null alike
  layout::TableLayout& at() const noexcept { return *reinterpret_cast<layout::TableLayout*>(mapping_.data()); }

  std::string name_;
  FileDescriptor fd_;
  SharedMapping mapping_;
};

}  // namespace tq
