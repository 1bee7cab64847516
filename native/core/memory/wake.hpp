// Sleeping on a 32-bit word of the control segment (a futex shared between processes).
//
//   seen = word;  check the condition;  if it does not hold: wait_word(word, seen, timeout)
//
// No wake is lost: a producer commits first and bumps afterwards. If the bump precedes the read of `seen`, the commit precedes
// the check. If it follows, the word differs from `seen` and the kernel, which compares under its own lock, does not sleep.
// A producer may die between commit and bump: waiters sleep in slices and re-check.
#pragma once

#include <atomic>
#include <cstdint>

namespace tq {

inline constexpr double wait_slice_s = 0.1;  // between two looks at signals and at the condition itself
inline constexpr double longest_slice_s = 0.5;  // of who has waited for a second

// The word as a waiter reads it before it checks. Acquire: pairs with bump_word.
inline std::uint32_t read_word(const std::atomic<std::uint32_t>& word) noexcept {
  return word.load(std::memory_order_acquire);
}
// True when the word differs from `seen`. False after timeout_s, or early when a signal arrived (so that the caller can look
// at it). Sleeps at most timeout_s; not inside an OperationGuard.
bool wait_word(const std::atomic<std::uint32_t>& word, std::uint32_t seen, double timeout_s) noexcept;
// Adds one (release) and wakes every waiter of every process.
void bump_word(std::atomic<std::uint32_t>& word) noexcept;

}  // namespace tq
