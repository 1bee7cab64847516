#include "core/memory/fork_gate.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace tq {
namespace {

constexpr std::uint32_t closed_bit = 1u << 31;

// A count of who is inside, and one bit that keeps newcomers out. Two atomic operations a passage, no lock.
class Gate {
 public:
  void enter() noexcept {
    // Acquire pairs with open(): what the hooks of a fork did is ordered before us.
    while ((state_.fetch_add(1, std::memory_order_acquire) & closed_bit) != 0) {
      leave();
      for (std::uint32_t seen = state_.load(std::memory_order_relaxed); (seen & closed_bit) != 0;
           seen = state_.load(std::memory_order_relaxed)) {
        sleep(seen);
      }
    }
  }
  // Release pairs with close(): what we did is ordered before the hooks.
  void leave() noexcept {
    const std::uint32_t before = state_.fetch_sub(1, std::memory_order_release);
    if ((before & closed_bit) != 0) wake();
  }
  void close() noexcept {
    state_.fetch_or(closed_bit, std::memory_order_relaxed);
    for (std::uint32_t seen = state_.load(std::memory_order_acquire); (seen & ~closed_bit) != 0;
         seen = state_.load(std::memory_order_acquire)) {
      sleep(seen);
    }
  }
  void open() noexcept {
    state_.fetch_and(~closed_bit, std::memory_order_release);
    wake();
  }
  void reset() noexcept { state_.store(0, std::memory_order_relaxed); }  // a child: no other thread exists

 private:
  void sleep(std::uint32_t seen) noexcept { ::syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0); }
  void wake() noexcept { ::syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0); }

  std::atomic<std::uint32_t> state_{0};
};

Gate operations;
Gate deleters;

// Constant-initialised integers: usable in a deleter that runs while a thread or the process ends.
thread_local int operation_depth = 0;
thread_local int deleter_depth = 0;
thread_local bool forking = false;

}  // namespace

OperationGuard::OperationGuard() noexcept : entered_(operation_depth == 0 && deleter_depth == 0 && !forking) {
  ++operation_depth;
  if (entered_) operations.enter();
}
OperationGuard::~OperationGuard() {
  --operation_depth;
  if (entered_) operations.leave();
}
DeleterGuard::DeleterGuard() noexcept : entered_(deleter_depth == 0 && !forking) {
  ++deleter_depth;
  if (entered_) deleters.enter();
}
DeleterGuard::~DeleterGuard() {
  --deleter_depth;
  if (entered_) deleters.leave();
}

void fork_gate::close_all() noexcept {
  operations.close();
  deleters.close();
  forking = true;
}
void fork_gate::open_all() noexcept {
  forking = false;
  deleters.open();
  operations.open();
}
void fork_gate::reset_in_child() noexcept {
  forking = false;
  deleters.reset();
  operations.reset();
}

}  // namespace tq
