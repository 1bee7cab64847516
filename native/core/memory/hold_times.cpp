#include "core/memory/hold_times.hpp"

namespace tq {

std::vector<std::pair<std::uint64_t, std::uint64_t>> HoldTimes::counts() const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> found;
  for (unsigned index = 0; index < class_count; ++index) {
    const std::uint64_t count = counts_[index].load(std::memory_order_relaxed);
    if (count > 0) found.emplace_back(longest_of(index), count);
  }
  return found;
}

}  // namespace tq
