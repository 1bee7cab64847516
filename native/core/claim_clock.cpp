#include "core/claim_clock.hpp"

#include <time.h>

#include <atomic>

#include "core/error.hpp"
#include "core/pause.hpp"

namespace tq {

namespace {

std::atomic<std::int64_t> ahead{0};

}  // namespace

std::int64_t claim_clock_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  // Relaxed: a test sets the clock between calls, not while they run.
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec + ahead.load(std::memory_order_relaxed);
}

void set_claim_clock_ahead(std::int64_t ahead_ns) {
  if (!pause_points_compiled) {
    throw Error(ErrorCode::invalid, "this build has no pause points; build it with -DTQ_PAUSE_POINTS=ON to move its clock");
  }
  ahead.store(ahead_ns, std::memory_order_relaxed);
}

}  // namespace tq
