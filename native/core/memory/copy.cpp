#include "core/memory/copy.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/memory/copy_job.hpp"
#include "core/memory/copy_pool.hpp"
#include "core/memory/fork_gate.hpp"

namespace tq {

int usable_cpus() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails with EINVAL on machines of more CPUs than cpu_set_t holds: then there is more than one.
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : std::numeric_limits<int>::max();
}

std::uint64_t copy_ranges(std::span<const CopyRange> ranges) {
  const OperationGuard guard;
  std::uint64_t total = 0;
  for (const CopyRange& range : ranges) total += range.nbytes;
  if (total < parallel_copy_min_nbytes) {
    for (const CopyRange& range : ranges) {
      if (range.nbytes > 0) std::memcpy(range.destination, range.source, range.nbytes);
    }
    return total;
  }
  CopyJob job(ranges);
  if (usable_cpus() == 1 || !CopyPool::instance().run(job)) job.work();
  return total;
}

}  // namespace tq
