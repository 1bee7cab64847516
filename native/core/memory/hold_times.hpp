// How long a lock was held, counted in classes that grow with the time: two clock readings and one add a hold, and no memory
// but the counts. A class is an eighth of a power of two wide, so a quantile read from it is at most 12.5 % too high.
//
// Written by the holder of the lock only, hence plain loads and stores would do between writers; relaxed atomics because a
// reader without the lock looks meanwhile, and may see a hold counted or not.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace tq {

class HoldTimes {
 public:
  static constexpr unsigned sub_bits = 3;
  static constexpr unsigned class_count = (64 - sub_bits + 1) << sub_bits;

  static constexpr unsigned class_of(std::uint64_t nanoseconds) noexcept;
  // The longest time of a class.
  static constexpr std::uint64_t longest_of(unsigned index) noexcept;

  void add(std::uint64_t nanoseconds) noexcept {
    std::atomic<std::uint64_t>& count = counts_[class_of(nanoseconds)];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void clear() noexcept {
    for (auto& count : counts_) count.store(0, std::memory_order_relaxed);
  }
  // (longest nanoseconds of the class, holds), ascending; classes without holds are left out.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> counts() const;

 private:
  std::array<std::atomic<std::uint64_t>, class_count> counts_{};
};

constexpr unsigned HoldTimes::class_of(std::uint64_t nanoseconds) noexcept {
  constexpr std::uint64_t exact = 1u << sub_bits;  // times below this have a class each
  if (nanoseconds < exact) return static_cast<unsigned>(nanoseconds);
  const unsigned shift = static_cast<unsigned>(std::bit_width(nanoseconds)) - 1 - sub_bits;
  return ((shift + 1) << sub_bits) + static_cast<unsigned>((nanoseconds >> shift) & (exact - 1));
}

constexpr std::uint64_t HoldTimes::longest_of(unsigned index) noexcept {
  constexpr unsigned exact = 1u << sub_bits;
  if (index < exact) return index;
  const unsigned shift = (index >> sub_bits) - 1;
  return ((std::uint64_t{exact + (index & (exact - 1))} + 1) << shift) - 1;
}

}  // namespace tq
