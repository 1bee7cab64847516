#include "core/index/slot_lock.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <thread>

#include "core/index/env.hpp"
#include "core/patience.hpp"
#include "core/pause.hpp"
#include "core/process_name.hpp"

namespace tq::index {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double longest_s = 30.0;

// Never destroyed: a daemon thread may read while static objects go. In a child the mutex may be held by a thread that does not
// exist there; then it gets another one.
std::mutex* of_this_process = nullptr;

std::mutex& in_process() {
  [[maybe_unused]] static const bool made = [] {
    of_this_process = new std::mutex;
    pthread_atfork(nullptr, nullptr, [] { of_this_process = new std::mutex; });
    return true;
  }();
  return *of_this_process;
}

struct flock whole_file(short kind) {
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Held for microseconds by who runs.
void rest(unsigned tries) {
  std::this_thread::sleep_for(std::chrono::microseconds(std::min(50u << std::min(tries, 8u), 5000u)));
}

Error not_free(double waited_s, const std::string& holder) {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.3g", waited_s);
  return Error(ErrorCode::timeout, std::string("the lock of the index's reader table was not free within ") + seconds + " s; " +
                                       holder + " holds it: have it continue, or end it");
}

}  // namespace

SlotLock::SlotLock(const std::string& directory) {
  const double limit_s = Patience::left_s(longest_s);
  const Clock::time_point until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(limit_s));
  std::mutex& mutex = in_process();
  // Polled, like the file's lock below: the thread sanitizer does not know the timed mutex of this library.
  for (unsigned tries = 0; !mutex.try_lock(); ++tries) {
    if (Clock::now() >= until) throw not_free(limit_s, "another thread of this process");
    rest(tries);
  }
  try {
    const std::string path = directory + "/slots.lock";
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ < 0) throw_lmdb(errno, "open " + path);
    for (unsigned tries = 0;; ++tries) {
      struct flock lock = whole_file(F_WRLCK);
      if (::fcntl(fd_, F_SETLK, &lock) == 0) break;
      if (errno != EACCES && errno != EAGAIN && errno != EINTR) throw_lmdb(errno, "lock " + path);
      if (Clock::now() >= until) {
        struct flock found = whole_file(F_WRLCK);
        const bool held = ::fcntl(fd_, F_GETLK, &found) == 0 && found.l_type != F_UNLCK && found.l_pid > 0;
        Error error = not_free(limit_s, held ? process_name(found.l_pid) : "another process");
        if (held) error.figures = {{"holder_pid", static_cast<std::uint64_t>(found.l_pid)}};
        throw error;
      }
      rest(tries);
    }
  } catch (...) {
    if (fd_ >= 0) ::close(fd_);
    mutex.unlock();
    throw;
  }
  TQ_PAUSE_NOTHROW("index.slot_locked");
}

SlotLock::~SlotLock() {
  ::close(fd_);  // and with it the lock
  in_process().unlock();
}

}  // namespace tq::index
