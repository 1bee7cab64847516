// How long a lock was held, counted in classes that grow with the time: two clock readings and one add a hold, and no memory
// but the counts. A class is an eighth of a power of two wide, so a quantile read from it is at most 12.5 % too high.
//
// Written by the holder of the lock only, hence plain loads and stores would do between writers; relaxed atomics because a
// reader without the lock looks meanwhile, and may see a hold counted or not.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/memory/log_classes.hpp"

namespace tq {

class HoldTimes {
 public:
  using Classes = LogClasses<3>;
  static constexpr unsigned class_count = Classes::count;

  static constexpr unsigned class_of(std::uint64_t nanoseconds) noexcept { return Classes::class_of(nanoseconds); }
  // The longest time of a class.
  static constexpr std::uint64_t longest_of(unsigned index) noexcept { return Classes::largest_of(index); }

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

}  // namespace tq
