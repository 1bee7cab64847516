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

// Whoever can look for a Ctrl-C may not do so inside a call: that takes the interpreter's lock, and a thread that has it may be
// waiting, in fork, for this call to end. So the first lock that a call meets, before it has changed anything, is waited for
// in slices: after each the call ends with Error(timeout) that says `nothing_done`, and whoever made it looks, and makes it anew.
// What a call waits for later, or as another lock, it waits for until its deadline.
class FirstWait {
 public:
  // `whole_s`: what errors say how long it was waited. `last`: of the last slice, which ends in an error like any other.
  FirstWait(double slice_s, double whole_s, bool last) noexcept;
  ~FirstWait();
  FirstWait(const FirstWait&) = delete;
  FirstWait& operator=(const FirstWait&) = delete;

  // Of the thread's call; nullptr: nobody said so, or it has met its first lock.
  static const FirstWait* current() noexcept;
  static void over() noexcept;  // it has

  const double slice_s;
  const double whole_s;
  const bool last;

 private:
  const FirstWait* const before_;
};

}  // namespace tq
