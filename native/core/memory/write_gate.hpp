// Locks of the control segment, as the index and the samplers use them.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <sys/types.h>

#include "core/gate.hpp"
#include "core/memory/control_segment.hpp"
#include "core/memory/hold_times.hpp"
#include "core/memory/robust_lock.hpp"

namespace tq {

// In front of LMDB's write lock, which knows neither deadlines nor names. Whoever holds it and dies is replaced at once: the
// gate protects no data of its own, LMDB recovers its part.
class RobustWriteGate final : public WriteGate {
 public:
  // `timeout_s`: of calls that have no deadline of their own (patience.hpp).
  explicit RobustWriteGate(std::shared_ptr<ControlSegment> control, double timeout_s = 30.0,
                           robust_lock::Interrupted interrupted = nullptr);
  void enter() override;  // Error(timeout) "... held by process 123"
  void leave() noexcept override;

  // Of this process since it attached, or forked: between enter and leave, preemption included.
  const HoldTimes& hold_times() const noexcept { return hold_times_; }
  void after_fork_in_child() noexcept { hold_times_.clear(); }

 private:
  std::chrono::nanoseconds wait();

  const std::shared_ptr<ControlSegment> control_;
  const std::string what_;  // for messages, made once: every write transaction enters here
  const double timeout_s_;
  const robust_lock::Interrupted interrupted_;
  std::chrono::steady_clock::time_point entered_;  // of the holder: ordered by the lock itself
  HoldTimes hold_times_;
};

// Held by whoever backs more of the payload segment. Apart from the write gate: backing a step takes the kernel 0.1 to 0.7 s
// (measured, 32 to 256 MiB), during which everybody else's small transactions go on. Order: this lock, then the write gate.
class GrowthLock {
 public:
  explicit GrowthLock(ControlSegment& control, double timeout_s = 30.0);  // Error(timeout) naming the holder
  ~GrowthLock();
  GrowthLock(const GrowthLock&) = delete;
  GrowthLock& operator=(const GrowthLock&) = delete;

 private:
  layout::RobustLock& lock_;
};

// Held by whoever moves blocks to the spill file: two at once would choose the same ones. Nothing but double work depends on it,
// so that after `timeout_s` its holder (which may be stopped) is not waited for any longer. Order: before the growth lock.
class SpillLock {
 public:
  SpillLock(ControlSegment& control, double timeout_s);
  ~SpillLock();
  SpillLock(const SpillLock&) = delete;
  SpillLock& operator=(const SpillLock&) = delete;
  bool held() const noexcept { return lock_ != nullptr; }

 private:
  layout::RobustLock* lock_ = nullptr;
};

// Serialises the samplers of one (partition, task) that lost too many races. Held by the thread that made it, which also
// destroys it; in a forked child the copy is inert. Takes no part in fork_gate: it may be held across Python code.
class TaskLock {
 public:
  TaskLock(std::shared_ptr<ControlSegment> control, PartitionId partition, const std::string& task, double timeout_s,
           robust_lock::Interrupted interrupted = nullptr);
  ~TaskLock() { release(); }
  TaskLock(const TaskLock&) = delete;
  TaskLock& operator=(const TaskLock&) = delete;
  void release() noexcept;  // idempotent

 private:
  std::shared_ptr<ControlSegment> control_;
  layout::RobustLock* lock_ = nullptr;
  pid_t pid_ = 0;
};

}  // namespace tq
