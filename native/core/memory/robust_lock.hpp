// A mutex between processes that survives its holder: pthread's robust, process-shared, error-checking kind.
// Waiting is timed, in slices, so that a stuck holder costs a timeout that names it and a Ctrl-C is seen.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <sys/types.h>

#include "core/memory/layout.hpp"

namespace tq::robust_lock {

void format(layout::RobustLock& lock);
// What to call between two slices of 100 ms while waiting; may throw (a signal handler's error) to give up. Null: nothing.
using Interrupted = void (*)();
// Error(timeout) naming `what` and the holder's pid after timeout_s. A lock whose holder died is taken over and repaired
// (`died`, when given, tells). The calling thread owns it; another thread cannot unlock it.
// `said_s`: how long the error says that it was waited, where this was not the first try.
// Returns how long that took: 0, without a look at the clock, where it was free.
std::chrono::nanoseconds lock(layout::RobustLock& lock, double timeout_s, const std::string& what,
                              Interrupted interrupted = nullptr, bool* died = nullptr, double said_s = 0.0);
void unlock(layout::RobustLock& lock) noexcept;

}  // namespace tq::robust_lock
