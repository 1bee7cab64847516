#include "core/memory/copy_job.hpp"

#include <algorithm>
#include <cstring>

#include "core/memory/stream_copy.hpp"

namespace tq {
namespace {

constexpr std::uint64_t part_nbytes = 256u << 10;        // large against the cost of taking it, short to wait for
constexpr std::uint64_t streams_from_nbytes = 32u << 20;  // more than caches keep until somebody reads it

}  // namespace

CopyJob::CopyJob(std::span<const CopyRange> ranges) : ranges_(ranges), ends_(ranges.size()) {
  for (std::size_t i = 0; i < ranges.size(); ++i) ends_[i] = total_ += ranges[i].nbytes;
  streams_ = total_ >= streams_from_nbytes;
}

// Relaxed: parts are disjoint. Who waits for the threads orders their bytes before what it does next (CopyPool's mutex).
std::uint64_t CopyJob::work() noexcept {
  std::uint64_t copied = 0;
  for (;;) {
    const std::uint64_t begin = next_.fetch_add(part_nbytes, std::memory_order_relaxed);
    if (begin >= total_) break;
    const std::uint64_t end = std::min(begin + part_nbytes, total_);
    copy(begin, end);
    copied += end - begin;
  }
  if (streams_) stream_fence();
  return copied;
}

void CopyJob::copy(std::uint64_t at, std::uint64_t end) noexcept {
  auto i = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
  for (; at < end; ++i) {
    const CopyRange& range = ranges_[i];
    const std::uint64_t skip = at - (ends_[i] - range.nbytes);
    const std::uint64_t n = std::min(range.nbytes - skip, end - at);
    if (n > 0) (streams_ ? stream_copy(range.destination + skip, range.source + skip, n)
                         : void(std::memcpy(range.destination + skip, range.source + skip, n)));
    at += n;
  }
}

}  // namespace tq
