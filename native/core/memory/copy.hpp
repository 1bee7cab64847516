// Copying many byte ranges, on several threads where that pays.
//
// The threads are ours: a small pool made at the first large copy. torch's and OpenMP's thread counts are neither read nor set.
// A caller that finds the pool busy copies alone. The pool's threads block all signals, hold nothing between jobs and do not
// exist in a forked child, which makes its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tq {

struct CopyRange {
  std::byte* destination = nullptr;
  const std::byte* source = nullptr;
  std::uint64_t nbytes = 0;
};

// Below this many bytes in all, one thread: waking another costs more than it saves, the more so where many processes copy.
inline constexpr std::uint64_t parallel_copy_min_nbytes = 8u << 20;

// Ranges do not overlap. Returns the bytes copied. Inside an operation (fork waits for it).
std::uint64_t copy_ranges(std::span<const CopyRange> ranges);
inline std::uint64_t copy_bytes(std::byte* destination, const std::byte* source, std::uint64_t nbytes) {
  const CopyRange range{destination, source, nbytes};
  return copy_ranges({&range, 1});
}

// CPUs that this process may use now (sched_getaffinity).
int usable_cpus() noexcept;

}  // namespace tq
