#include "core/file_size_signal.hpp"

#include <pthread.h>
#include <sys/resource.h>

#include <cerrno>
#include <ctime>
#include <limits>

namespace tq {

namespace {

sigset_t only_xfsz() noexcept {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

bool is_pending() noexcept {
  sigset_t pending;
  return ::sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

}  // namespace

FileSizeSignal::FileSizeSignal() noexcept : limit_(std::numeric_limits<std::uint64_t>::max()) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  limit_ = limit.rlim_cur;
  if (is_pending()) return;  // blocked already, and not ours to take
  const sigset_t set = only_xfsz();
  held_ = ::pthread_sigmask(SIG_BLOCK, &set, &before_) == 0;
}

FileSizeSignal::~FileSizeSignal() {
  if (!held_) return;
  const sigset_t set = only_xfsz();
  const timespec at_once{};
  // The kernel sends it to the thread that wrote, before the write returns: it is taken here, or there is none.
  while (::sigtimedwait(&set, nullptr, &at_once) < 0 && errno == EINTR) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace tq
