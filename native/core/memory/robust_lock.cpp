#include "core/memory/robust_lock.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>

#include "core/error.hpp"
#include "core/process_name.hpp"

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace tq::robust_lock {

namespace {

constexpr std::int64_t slice_ns = 100'000'000;
// A transaction holds the gate for about 10 us (p99 37), and falling asleep on it and being woken costs both sides more, above
// all what the sleeper had in its caches. Measured with 16 processes on 2 cores, 20 -> 60 us: idle time 10 -> 5 %, 5 % more puts.
constexpr std::int64_t spin_ns = 60'000;

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// EBUSY when the holder kept it. Looks at the word for messages, which costs the holder less than tries do, and only tries
// when it reads "nobody"; a holder that died leaves its pid there and is found by the call that sleeps.
int spin(layout::RobustLock& lock) noexcept {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::nanoseconds(spin_ns);
  do {
    for (int i = 0; i < 16; ++i) {
      if (lock.holder_pid.load(std::memory_order_relaxed) == 0) {
        const int result = ::pthread_mutex_trylock(&lock.mutex);
        if (result != EBUSY) return result;
      }
      relax();
    }
  } while (Clock::now() < until);
  return EBUSY;
}

// glibc ends the process when it meets a mutex whose kind contradicts the rest of it.
bool is_ours([[maybe_unused]] const layout::RobustLock& lock) {
#if defined(__GLIBC__)
  static const int kind = [] {
    layout::RobustLock fresh{};
    format(fresh);
    return fresh.mutex.__data.__kind;
  }();
  return lock.mutex.__data.__kind == kind;
#else
  return true;
#endif
}

timespec realtime_after(std::int64_t nanoseconds) {
  timespec until{};
  ::clock_gettime(CLOCK_REALTIME, &until);
  const std::int64_t sum = until.tv_nsec + nanoseconds;
  until.tv_sec += sum / 1'000'000'000;
  until.tv_nsec = sum % 1'000'000'000;
  return until;
}

// The word of the mutex holds the owner's thread number: the kernel finds the locks of the dead by it. It fills the gap between
// taking the mutex and writing the pid down, in which a process may be stopped, too.
std::int32_t holder_of(const layout::RobustLock& lock) noexcept {
  const std::int32_t pid = lock.holder_pid.load(std::memory_order_relaxed);
#if defined(__GLIBC__)
  constexpr int thread_bits = 0x3fffffff;  // FUTEX_TID_MASK
  if (pid == 0) return __atomic_load_n(&lock.mutex.__data.__lock, __ATOMIC_RELAXED) & thread_bits;
#endif
  return pid;
}

Error not_free(const layout::RobustLock& lock, const std::string& what, double timeout_s) {
  const std::int32_t holder = holder_of(lock);
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3g", timeout_s);
  Error error(ErrorCode::timeout, "the " + what + " was not free within " + seconds + " s; " +
                                      (holder == 0 ? "it changes hands all the time"
                                                   : process_name(holder) + " holds it: have it continue, or end it"));
  if (holder != 0) error.figures = {{"holder_pid", static_cast<std::uint64_t>(holder)}};
  return error;
}

}  // namespace

void format(layout::RobustLock& lock) {
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
  const int error = ::pthread_mutex_init(&lock.mutex, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
  if (error != 0) throw Error::system("this system has no robust process-shared mutexes", error);
  lock.holder_pid.store(0, std::memory_order_relaxed);
}

std::chrono::nanoseconds lock(layout::RobustLock& lock, double timeout_s, const std::string& what, Interrupted interrupted,
                              bool* died, double said_s) {
  using Clock = std::chrono::steady_clock;
  if (!is_ours(lock)) throw Error(ErrorCode::corrupt, "the " + what + " was damaged from outside: end the session");
  int result = ::pthread_mutex_trylock(&lock.mutex);
  const bool was_busy = result == EBUSY;
  const auto asked = was_busy ? Clock::now() : Clock::time_point();
  if (was_busy) result = spin(lock);
  if (result == EBUSY) {
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
    do {
      const std::int64_t left = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
      if (left <= 0) throw not_free(lock, what, std::max(timeout_s, said_s));
      // The slice is measured on the settable clock, the whole on the steady one: a clock that jumps costs one slice.
      const timespec until = realtime_after(std::min(left, slice_ns));
      result = ::pthread_mutex_timedlock(&lock.mutex, &until);
      if (result == ETIMEDOUT && interrupted != nullptr) interrupted();
    } while (result == ETIMEDOUT);
#if defined(__SANITIZE_THREAD__)
    // Its interceptor of timedlock (unlike that of trylock) does not know that this result means locked.
    if (result == EOWNERDEAD) {
      __tsan_mutex_pre_lock(&lock.mutex, 0);
      __tsan_mutex_post_lock(&lock.mutex, 0, 0);
    }
#endif
  }
  if (died != nullptr) *died = result == EOWNERDEAD;
  if (result == EOWNERDEAD) result = ::pthread_mutex_consistent(&lock.mutex);
  if (result == ENOTRECOVERABLE || result == EINVAL) throw Error(ErrorCode::corrupt, "the " + what + " is beyond repair: end the session");
  if (result != 0) throw Error::system("cannot take the " + what, result);
  lock.holder_pid.store(::getpid(), std::memory_order_relaxed);
  return was_busy ? Clock::now() - asked : std::chrono::nanoseconds(0);
}

void unlock(layout::RobustLock& lock) noexcept {
  lock.holder_pid.store(0, std::memory_order_relaxed);
  ::pthread_mutex_unlock(&lock.mutex);
}

}  // namespace tq::robust_lock
