#include "core/memory/write_gate.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/patience.hpp"
#include "core/pause.hpp"

namespace tq {

RobustWriteGate::RobustWriteGate(std::shared_ptr<ControlSegment> control, double timeout_s, robust_lock::Interrupted interrupted)
    : control_(std::move(control)),
      what_("write lock of session '" + control_->session() + "'"),
      timeout_s_(timeout_s),
      interrupted_(interrupted) {}

void RobustWriteGate::enter() {
  control_->counters().took(Latency::lock_wait, wait());
  entered_ = std::chrono::steady_clock::now();
  TQ_PAUSE_NOTHROW("write_gate.entered");
}

std::chrono::nanoseconds RobustWriteGate::wait() {
  layout::RobustLock& gate = control_->write_gate();
  const double left_s = Patience::left_s(timeout_s_);
  const FirstWait* first = FirstWait::current();
  // Clean-up with a limit of its own, shorter than a slice, is no part of what may begin anew.
  if (first == nullptr || (!first->last && left_s < first->slice_s)) return robust_lock::lock(gate, left_s, what_, interrupted_);
  try {
    const auto waited = robust_lock::lock(gate, std::min(left_s, first->slice_s), what_, interrupted_, nullptr, first->whole_s);
    FirstWait::over();
    return waited;
  } catch (Error& error) {
    error.nothing_done = error.code == ErrorCode::timeout && !first->last;
    throw;
  }
}

void RobustWriteGate::leave() noexcept {
  const auto held = std::chrono::steady_clock::now() - entered_;
  control_->counters().took(Latency::lock_hold, held);
  hold_times_.add(static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(held).count()));
  robust_lock::unlock(control_->write_gate());
}

GrowthLock::GrowthLock(ControlSegment& control, double timeout_s) : lock_(control.growth_lock()) {
  robust_lock::lock(lock_, Patience::left_s(timeout_s), "growth lock of session '" + control.session() + "'");
  TQ_PAUSE_NOTHROW("growth.locked");
}

GrowthLock::~GrowthLock() { robust_lock::unlock(lock_); }

SpillLock::SpillLock(ControlSegment& control, double timeout_s) {
  try {
    robust_lock::lock(control.spill_lock(), timeout_s, "spill lock of session '" + control.session() + "'");
    lock_ = &control.spill_lock();
  } catch (const Error& error) {
    if (error.code != ErrorCode::timeout) throw;
  }
}

SpillLock::~SpillLock() {
  if (lock_ != nullptr) robust_lock::unlock(*lock_);
}

TaskLock::TaskLock(std::shared_ptr<ControlSegment> control, PartitionId partition, const std::string& task, double timeout_s,
                   robust_lock::Interrupted interrupted)
    : control_(std::move(control)), pid_(::getpid()) {
  layout::RobustLock& lock = control_->task_lock(partition, task);
  robust_lock::lock(lock, timeout_s, "lock of task '" + task + "'", interrupted);
  lock_ = &lock;
  TQ_PAUSE_NOTHROW("task.locked");
}

void TaskLock::release() noexcept {
  // A forked child inherits this object, not the lock.
  if (lock_ != nullptr && pid_ == ::getpid()) robust_lock::unlock(*lock_);
  lock_ = nullptr;
}

}  // namespace tq
