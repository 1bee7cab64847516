// Byte ranges to be copied, cut into parts that any number of threads take until none is left.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/memory/copy.hpp"

namespace tq {

class CopyJob {
 public:
  explicit CopyJob(std::span<const CopyRange> ranges);

  // Takes parts and copies them until none is left; returns the bytes that this call copied. Other calls may still be at
  // theirs then.
  std::uint64_t work() noexcept;
  std::uint64_t nbytes() const noexcept { return total_; }

 private:
  void copy(std::uint64_t at, std::uint64_t end) noexcept;

  std::span<const CopyRange> ranges_;
  std::vector<std::uint64_t> ends_;  // of each range in the line of all bytes
  std::uint64_t total_ = 0;
  bool streams_ = false;
  std::atomic<std::uint64_t> next_{0};
};

}  // namespace tq
