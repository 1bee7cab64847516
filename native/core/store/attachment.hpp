// What one process holds of a session, and the guard that every call of the store enters.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "core/index/index.hpp"
#include "core/memory/block_table.hpp"
#include "core/memory/control_segment.hpp"
#include "core/memory/fork_gate.hpp"
#include "core/memory/fork_registry.hpp"
#include "core/memory/lease_directory.hpp"
#include "core/memory/lease_file.hpp"
#include "core/memory/payload_segment.hpp"
#include "core/memory/producer_mapping.hpp"
#include "core/memory/write_gate.hpp"
#include "core/store/lease_judge.hpp"
#include "core/store/recent_spans.hpp"
#include "core/store/stock.hpp"

namespace tq {

struct SessionFiles {
  std::string directory;
  int control_fd = -1;
  int table_fd = -1;
  int payload_fd = -1;
  std::string session;
  int spill_fd = -1;  // -1: the session has no spill file
};

// Where extents that nobody uses any more wait for a call that may open a transaction. It keeps the lease file: while a
// pending block or a producer's mapping lives, also after close(), this process must count as alive, or the extent would be
// reused under it.
struct GiveBack {
  GiveBackQueue queue;
  std::shared_ptr<LeaseFile> leases;
};

class Attachment final : public ForkParticipant {
 public:
  explicit Attachment(const SessionFiles& files);
  ~Attachment() override;

  // Waits for the calls of other threads, then lets go of the index and of our share of the lease file, which ends with the
  // last view, allocation or pending block.
  void close();
  bool closed() const noexcept { return closed_.load(std::memory_order_acquire); }

  void after_fork_in_child() noexcept override;

  const std::string session;
  const std::string lease_path;
  const std::shared_ptr<ControlSegment> control;
  std::shared_ptr<PayloadSegment> payload;  // null once closed. With it, the control segment stays mapped, too: one count for both
  BlockTable table;
  std::shared_ptr<LeaseFile> leases;    // null once closed
  LeaseDirectory lease_directory;
  std::shared_ptr<GiveBack> give_back;  // null once closed
  Stock stock;
  std::atomic<bool> claimed{false};  // this process made claims, which end when it closes
  LeaseJudge judge;      // the index asks it which claims are over
  RecentSpans recent_spans;
  RobustWriteGate gate;  // the index enters it for every write transaction

 private:
  friend class Call;
  std::unique_ptr<Index> index_;  // null once closed
  std::shared_mutex in_use_;      // shared by calls, exclusive by close; held inside operations only, so free at every fork
  std::atomic<bool> closed_{false};
  std::atomic<bool> reopen_{false};  // a forked child that has not made a call yet
  std::mutex reopening_;
};

// What a call needs: the session not ended; ended or not; or, for what only writes into mapped memory, ended or not and even
// where the descriptors were closed in this process by somebody else.
enum class Needs { session, attachment, mappings };

// A call in progress: inside an operation (no fork meanwhile), the attachment open. Error(closed), Error(session_not_found).
class Call {
 public:
  explicit Call(Attachment& attachment, Needs needs = Needs::session);
  Index& index() const noexcept { return *attachment_.index_; }

 private:
  OperationGuard operation_;
  Attachment& attachment_;
  std::shared_lock<std::shared_mutex> in_use_;
};

// Bumped whenever bytes become free; writers that found no room sleep on it. It is one of the partition words, at an id
// that no partition of a real session reaches: sharing a word costs a spurious look, no more.
std::atomic<std::uint32_t>& room_word(ControlSegment& control) noexcept;
// By the partition's name, so that waiting for a partition that does not exist yet, or exists again, needs no look-up.
std::atomic<std::uint32_t>& partition_word(ControlSegment& control, const std::string& partition) noexcept;
// What every commit that concerns a partition ends with.
void wake_partition(ControlSegment& control, const std::string& partition) noexcept;
void wake_partitions(ControlSegment& control, const std::vector<std::string>& partitions) noexcept;

}  // namespace tq
