#include "core/memory/wake.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>

namespace tq {

namespace {

// Not FUTEX_*_PRIVATE: the waiters are in other processes.
long futex(const std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) noexcept {
  return ::syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

}  // namespace

bool wait_word(const std::atomic<std::uint32_t>& word, std::uint32_t seen, double timeout_s) noexcept {
  using Clock = std::chrono::steady_clock;
  if (read_word(word) != seen) return true;
  if (!(timeout_s > 0)) return false;
  constexpr double longest_s = 1e6;  // keeps the arithmetic in range; callers sleep in slices anyway
  const std::chrono::duration<double> longest(timeout_s < longest_s ? timeout_s : longest_s);
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(longest);
  for (;;) {
    const std::int64_t left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
    if (left <= 0) return read_word(word) != seen;
    const timespec timeout{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    const long result = futex(word, FUTEX_WAIT, seen, &timeout);
    if (read_word(word) != seen) return true;
    if (result != 0 && errno == EINTR) return false;
  }
}

void bump_word(std::atomic<std::uint32_t>& word) noexcept {
  word.fetch_add(1, std::memory_order_release);
  futex(word, FUTEX_WAKE, INT_MAX, nullptr);
}

}  // namespace tq
