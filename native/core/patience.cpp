#include "core/patience.hpp"

#include <algorithm>

namespace tq {
namespace {

using Clock = std::chrono::steady_clock;
// About 30 years: the sum with the clock still fits.
constexpr double longest_s = 1e9;

thread_local std::optional<Clock::time_point> until;
thread_local const FirstWait* first_wait = nullptr;

}  // namespace

Patience::Patience(std::optional<double> timeout_s) noexcept : before_(until) {
  if (!timeout_s) return;
  until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(*timeout_s, longest_s)));
}

Patience::~Patience() { until = before_; }

FirstWait::FirstWait(double slice_s, double whole_s, bool last) noexcept
    : slice_s(slice_s), whole_s(whole_s), last(last), before_(first_wait) {
  first_wait = this;
}

FirstWait::~FirstWait() { first_wait = before_; }

const FirstWait* FirstWait::current() noexcept { return first_wait; }

void FirstWait::over() noexcept { first_wait = nullptr; }

double Patience::left_s(double otherwise_s) noexcept {
  if (!until) return otherwise_s;
  return std::max(0.0, std::chrono::duration<double>(*until - Clock::now()).count());
}

}  // namespace tq
