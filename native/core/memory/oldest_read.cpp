#include "core/memory/oldest_read.hpp"

#include <time.h>

namespace tq {
namespace {

constexpr unsigned seconds_bits = 26;
constexpr unsigned txn_bits = 16;

std::uint64_t boot_seconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec);
}

constexpr std::uint64_t low(std::uint64_t value, unsigned bits) { return value & ((std::uint64_t{1} << bits) - 1); }

}  // namespace

std::uint64_t note_oldest_read(std::atomic<std::uint64_t>& word, std::int64_t pid, std::uint64_t txn) noexcept {
  const std::uint64_t now_s = boot_seconds();
  const std::uint64_t who = static_cast<std::uint64_t>(pid) << (txn_bits + seconds_bits) | low(txn, txn_bits) << seconds_bits;
  const std::uint64_t seen = word.load(std::memory_order_relaxed);
  if ((seen ^ who) >> seconds_bits == 0) return low(now_s - low(seen, seconds_bits), seconds_bits);
  word.store(who | low(now_s, seconds_bits), std::memory_order_relaxed);
  return 0;
}

}  // namespace tq
