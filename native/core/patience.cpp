#include "core/patience.hpp"

#include <algorithm>

namespace tq {
namespace {

using Clock = std::chrono::steady_clock;
// About 30 years: the sum with the clock still fits.
constexpr double longest_s = 1e9;

thread_local std::optional<Clock::time_point> until;

}  // namespace

Patience::Patience(std::optional<double> timeout_s) noexcept : before_(until) {
  if (!timeout_s) return;
  until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(*timeout_s, longest_s)));
}

Patience::~Patience() { until = before_; }

double Patience::left_s(double otherwise_s) noexcept {
  if (!until) return otherwise_s;
  return std::max(0.0, std::chrono::duration<double>(*until - Clock::now()).count());
}

}  // namespace tq
