// How long the call that this thread is in waits for what a process that does not run keeps: a lock, or pages of the index.
//
// Locks are free within microseconds unless their holder is stopped or swapped out, so most calls have one long limit of the
// lock's own. A call that has a deadline sets it here, for all the locks that it meets on its way.
#pragma once

#include <chrono>
#include <optional>

namespace tq {

class Patience {
 public:
  explicit Patience(std::optional<double> timeout_s) noexcept;  // nullopt: as if it were not there
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  // Seconds that the calling thread may still wait: `otherwise_s` where no call set a deadline.
  static double left_s(double otherwise_s) noexcept;

 private:
  const std::optional<std::chrono::steady_clock::time_point> before_;
};

}  // namespace tq
