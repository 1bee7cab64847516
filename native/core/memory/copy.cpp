#include "core/memory/copy.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/memory/background_thread.hpp"
#include "core/memory/fork_gate.hpp"
#include "core/memory/fork_registry.hpp"

namespace tq {
namespace {

constexpr std::uint64_t part_nbytes = 1u << 20;  // what a thread takes at a time: large against the cost of taking it
constexpr int max_threads = 8;                   // a few cores saturate the memory bus; the rest belongs to the trainer

// All ranges as one line of bytes, cut into parts that threads take until none is left.
class Job {
 public:
  explicit Job(std::span<const CopyRange> ranges) : ranges_(ranges), ends_(ranges.size()) {
    for (std::size_t i = 0; i < ranges.size(); ++i) ends_[i] = total_ += ranges[i].nbytes;
  }

  // Relaxed: parts are disjoint, and the pool's mutex orders their bytes before the caller's return.
  void work() noexcept {
    for (;;) {
      const std::uint64_t begin = next_.fetch_add(part_nbytes, std::memory_order_relaxed);
      if (begin >= total_) return;
      copy(begin, std::min(begin + part_nbytes, total_));
    }
  }

 private:
  void copy(std::uint64_t at, std::uint64_t end) noexcept {
    auto i = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
    for (; at < end; ++i) {
      const CopyRange& range = ranges_[i];
      const std::uint64_t skip = at - (ends_[i] - range.nbytes);
      const std::uint64_t n = std::min(range.nbytes - skip, end - at);
      if (n > 0) std::memcpy(range.destination + skip, range.source + skip, n);
      at += n;
    }
  }

  std::span<const CopyRange> ranges_;
  std::vector<std::uint64_t> ends_;
  std::uint64_t total_ = 0;
  std::atomic<std::uint64_t> next_{0};
};

class Pool {
 public:
  Pool(int n_threads, Pool* before) : before_(before) {
    for (int i = 0; i < n_threads; ++i) {
      if (!start_background_thread("tq-copy", [this] { serve(); })) break;  // then the caller does the work
    }
  }

  // False when another caller has the pool.
  bool run(Job& job) {
    const std::unique_lock busy(busy_, std::try_to_lock);
    if (!busy.owns_lock()) return false;
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      ++generation_;
    }
    work_.notify_all();
    job.work();
    std::unique_lock lock(mutex_);
    job_ = nullptr;  // who wakes late finds nothing
    done_.wait(lock, [this] { return helping_ == 0; });
    return true;
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    std::uint64_t seen = 0;  // the job that was worked on last may still stand there, and another may have its address
    for (;;) {
      work_.wait(lock, [&] { return job_ != nullptr && generation_ != seen; });
      Job* job = job_;
      seen = generation_;
      ++helping_;
      lock.unlock();
      job->work();
      lock.lock();
      if (--helping_ == 0) done_.notify_all();
    }
  }

  std::mutex busy_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  Job* job_ = nullptr;
  std::uint64_t generation_ = 0;
  int helping_ = 0;
  Pool* const before_;  // keeps a pool that a fork orphaned reachable
};

// Never destroyed: its threads sleep until the process ends.
class PoolHolder final : public ForkParticipant {
 public:
  static PoolHolder& instance() {
    static auto* holder = new PoolHolder();
    return *holder;
  }

  Pool& pool() {
    const std::lock_guard lock(mutex_);
    if (pool_ == nullptr) pool_ = new Pool(std::min(usable_cpus(), max_threads) - 1, orphan_);
    return *pool_;
  }

  // The threads stayed in the parent, and the pool's mutexes may be locked by them.
  void after_fork_in_child() noexcept override {
    if (pool_ != nullptr) orphan_ = pool_;
    pool_ = nullptr;
  }

 private:
  std::mutex mutex_;
  Pool* pool_ = nullptr;
  Pool* orphan_ = nullptr;
};

}  // namespace

int usable_cpus() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails with EINVAL on machines of more CPUs than cpu_set_t holds: then there is more than one.
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : max_threads;
}

std::uint64_t copy_ranges(std::span<const CopyRange> ranges) {
  const OperationGuard guard;
  std::uint64_t total = 0;
  for (const CopyRange& range : ranges) total += range.nbytes;
  if (total >= parallel_copy_min_nbytes && usable_cpus() > 1) {
    Job job(ranges);
    if (PoolHolder::instance().pool().run(job)) return total;
  }
  for (const CopyRange& range : ranges) {
    if (range.nbytes > 0) std::memcpy(range.destination, range.source, range.nbytes);
  }
  return total;
}

}  // namespace tq
