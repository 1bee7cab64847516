// Threads that help with large copies.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include <sched.h>
#include <sys/types.h>

#include "core/memory/copy_job.hpp"

namespace tq {

// Made at the first large copy and never destroyed: its threads sleep until the process ends. A forked child makes its own.
class CopyPool {
 public:
  static CopyPool& instance();

  CopyPool(int n_threads, CopyPool* orphan);

  // Copies all of `job`, with as many threads as come in time. False, and nothing done: another caller has the pool, or the
  // last jobs found no CPU for its threads.
  bool run(CopyJob& job);

 private:
  void serve();
  void keep_off_callers_cpu();
  void judge(std::uint64_t nbytes, std::uint64_t by_caller, std::int64_t working_ns, std::int64_t waiting_ns);

  std::mutex busy_;  // held by the caller whose job it is
  std::int64_t refusal_ns_ = 0;  // under busy_, like the next one
  std::int64_t refuses_until_ns_ = 0;

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable done_;
  CopyJob* job_ = nullptr;
  std::uint64_t generation_ = 0;
  int helping_ = 0;
  std::vector<pid_t> threads_;  // those that have begun
  cpu_set_t helpers_cpus_{};    // where all of them may run, if placed_
  bool placed_ = false;
  CopyPool* const orphan_;      // keeps a pool that a fork orphaned reachable
};

}  // namespace tq
