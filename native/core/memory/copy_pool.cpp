#include "core/memory/copy_pool.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/memory/background_thread.hpp"
#include "core/memory/fork_registry.hpp"

namespace tq {
namespace {

constexpr int max_threads = 8;  // a few cores saturate the memory bus; the rest belongs to the trainer
constexpr std::int64_t min_refusal_ns = 1'000'000;
constexpr std::int64_t max_refusal_ns = 100'000'000;

class PoolHolder final : public ForkParticipant {
 public:
  CopyPool& pool() {
    const std::lock_guard lock(mutex_);
    if (pool_ == nullptr) pool_ = new CopyPool(std::min(usable_cpus(), max_threads) - 1, orphan_);
    return *pool_;
  }

  // The threads stayed in the parent, and the pool's mutexes may be locked by them.
  void after_fork_in_child() noexcept override {
    if (pool_ != nullptr) orphan_ = pool_;
    pool_ = nullptr;
  }

 private:
  std::mutex mutex_;
  CopyPool* pool_ = nullptr;
  CopyPool* orphan_ = nullptr;
};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

CopyPool& CopyPool::instance() {
  static auto* holder = new PoolHolder();
  return holder->pool();
}

CopyPool::CopyPool(int n_threads, CopyPool* orphan) : orphan_(orphan) {
  for (int i = 0; i < n_threads; ++i) {
    if (!start_background_thread("tq-copy", [this] { serve(); })) break;  // then the caller does the work
  }
}

bool CopyPool::run(CopyJob& job) {
  const std::unique_lock busy(busy_, std::try_to_lock);
  if (!busy.owns_lock()) return false;
  const std::int64_t began = now_ns();
  if (began < refuses_until_ns_) return false;
  {
    const std::lock_guard lock(mutex_);
    keep_off_callers_cpu();
    job_ = &job;
    ++generation_;
  }
  work_.notify_all();
  const std::uint64_t by_caller = job.work();
  const std::int64_t finished = now_ns();
  {
    std::unique_lock lock(mutex_);
    job_ = nullptr;  // who wakes late finds nothing
    done_.wait(lock, [this] { return helping_ == 0; });
  }
  judge(job.nbytes(), by_caller, finished - began, now_ns() - finished);
  return true;
}

// A thread that is woken is put on the CPU of the waker more often than not, also where another is idle, and then runs when
// the waker is done: two threads took as long as one. So the threads may run anywhere but where the caller is.
void CopyPool::keep_off_callers_cpu() {
  const auto cpu = static_cast<unsigned>(::sched_getcpu());  // -1 becomes a number that no CPU has
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  if (cpu >= CPU_SETSIZE || ::sched_getaffinity(0, sizeof wanted, &wanted) != 0) return;
  CPU_CLR(cpu, &wanted);
  if (CPU_COUNT(&wanted) == 0 || (placed_ && CPU_EQUAL(&wanted, &helpers_cpus_))) return;
  for (const pid_t thread : threads_) ::sched_setaffinity(thread, sizeof wanted, &wanted);  // best effort
  helpers_cpus_ = wanted;
  placed_ = true;
}

// Where the other CPUs are busy with somebody else's work, a thread of ours comes late, or stops in the middle of a part for
// which the caller then waits. When the whole took as long as the caller by its own pace had needed alone, jobs are done without
// for a while, and for twice as long each further time.
void CopyPool::judge(std::uint64_t nbytes, std::uint64_t by_caller, std::int64_t working_ns, std::int64_t waiting_ns) {
  const double alone_ns =
      static_cast<double>(working_ns) * static_cast<double>(nbytes) / static_cast<double>(std::max(by_caller, std::uint64_t{1}));
  const bool paid = static_cast<double>(working_ns + waiting_ns) < 0.9 * alone_ns;
  refusal_ns_ = paid ? 0 : std::clamp(2 * refusal_ns_, min_refusal_ns, max_refusal_ns);
  refuses_until_ns_ = paid ? 0 : now_ns() + refusal_ns_;
}

void CopyPool::serve() {
  std::unique_lock lock(mutex_);
  threads_.push_back(::gettid());
  placed_ = false;
  std::uint64_t seen = 0;  // the job that was worked on last may still stand there, and another may have its address
  for (;;) {
    work_.wait(lock, [&] { return job_ != nullptr && generation_ != seen; });
    CopyJob* job = job_;
    seen = generation_;
    ++helping_;
    lock.unlock();
    job->work();
    lock.lock();
    if (--helping_ == 0) done_.notify_all();
  }
}

}  // namespace tq
