// The control segment: the few words that all clients of a session share outside the index.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/memory/counters.hpp"
#include "core/memory/segment.hpp"
#include "core/types.hpp"

namespace tq {

class ControlSegment {
 public:
  // Creator only: sizes, backs and formats the segment. Error(storage_full) when /dev/shm cannot hold it.
  static void format(int fd, const std::string& session, std::uint64_t payload_bytes, std::uint64_t step_bytes);
  // `fd` is only used during the call. Error(layout_mismatch) also when this process lives in another pid namespace than
  // the creator: robust locks and LMDB's reader table know processes by id.
  ControlSegment(int fd, const std::string& session);

  const std::string& session() const noexcept { return session_; }
  std::uint64_t payload_bytes() const noexcept { return at().payload_bytes; }
  std::uint64_t step_bytes() const noexcept { return at().step_bytes; }

  OwnerId next_owner() noexcept;  // never repeats in a session

  // Sets the ended word and wakes every waiter of every word.
  void end_session() noexcept;
  bool ended() const noexcept;

  // 32-bit futex words: see wake.hpp for how to wait. A commit bumps the partition's and then the session's.
  std::atomic<std::uint32_t>& session_word() noexcept { return at().session_word.value; }
  std::atomic<std::uint32_t>& partition_word(PartitionId id) noexcept;

  layout::RobustLock& write_gate() noexcept { return at().write_gate; }
  std::atomic<std::uint64_t>& oldest_read() noexcept { return at().oldest_read.value; }
  layout::RobustLock& growth_lock() noexcept { return at().growth_lock; }
  layout::RobustLock& spill_lock() noexcept { return at().spill_lock; }
  layout::RobustLock& task_lock(PartitionId id, const std::string& task) noexcept;  // by hash: a collision only serialises

  std::atomic<std::uint32_t>& limit_epoch() noexcept { return at().limit_epoch.value; }  // see Store::limit_epoch
  std::atomic<std::uint64_t>& handovers() noexcept { return at().handovers.value; }
  Counters& counters() noexcept { return counters_; }

 private:
  layout::ControlLayout& at() const noexcept { return *reinterpret_cast<layout::ControlLayout*>(mapping_.data()); }
  std::string session_;
  SharedMapping mapping_;
  Counters counters_;
};

}  // namespace tq
