#include "core/memory/background_thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

namespace tq {

bool start_background_thread(const char* name, std::function<void()> work) noexcept {
  sigset_t all;
  sigset_t old;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &old);  // inherited by the thread
  bool started = false;
  try {
    std::thread thread(std::move(work));
    ::pthread_setname_np(thread.native_handle(), name);
    thread.detach();
    started = true;
  } catch (const std::system_error&) {
    // No more threads: the caller does without.
  }
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return started;
}

}  // namespace tq
