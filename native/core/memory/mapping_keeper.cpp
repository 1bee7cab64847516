// The thread that looks at dropped mappings: see kept_mappings.hpp.
#include <sched.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "core/memory/background_thread.hpp"
#include "core/memory/fences.hpp"
#include "core/memory/fork_gate.hpp"
#include "core/memory/fork_registry.hpp"
#include "core/memory/kept_mappings.hpp"
#include "core/memory/mapping_budget.hpp"
#include "core/memory/data_region.hpp"
#include "core/memory/wake.hpp"
#include "core/memory/written_pages.hpp"
#include "core/pause.hpp"

namespace tq {

namespace {

constexpr std::chrono::milliseconds nap{2};

class Keeper final : public ForkParticipant {
 public:
  // Never destroyed: views die after static objects, and the thread sleeps until the process ends.
  static Keeper& instance() {
    static auto* keeper = new Keeper();
    return *keeper;
  }

  bool start() noexcept {
    if (running()) return true;
    const std::lock_guard lock(starting_);
    if (running()) return true;
    if (!start_background_thread("tq-keep", [this] { serve(); })) return false;
    running_.store(true, std::memory_order_release);
    return true;
  }
  bool running() const noexcept { return running_.load(std::memory_order_acquire); }

  void push(std::unique_ptr<mapping_keeper::Node> node) noexcept {
    mapping_keeper::Node* pushed = node.release();
    backlog_.fetch_add(1, std::memory_order_relaxed);
    pushed->next = head_.load(std::memory_order_relaxed);
    // Release: what the dropped tensors' users wrote is ordered before the look.
    while (!head_.compare_exchange_weak(pushed->next, pushed, std::memory_order_release, std::memory_order_relaxed)) {
    }
    // Dekker with serve(): we push and look whether the thread sleeps, it says that it sleeps and looks at the queue.
    full_fence();
    if (sleeps_.load(std::memory_order_relaxed)) bump_word(word_);
  }
  std::uint64_t backlog() const noexcept { return backlog_.load(std::memory_order_acquire); }

  // The thread stayed in the parent. What is queued is the parent's to look at; here nobody would.
  void after_fork_in_child() noexcept override {
    running_.store(false, std::memory_order_relaxed);
    while (std::unique_ptr<mapping_keeper::Node> node = pop()) {
      mapping_budget::unmap(node->range.base, node->range.nbytes);
    }
    backlog_.store(0, std::memory_order_relaxed);
  }

 private:
  // After a look the thread naps rather than waits to be woken: a process that drops a view every 200 us would else give its CPU
  // away as often, and sixteen of them lose each other's caches with every switch.
  void serve() noexcept {
    // Never takes the CPU from a thread that runs: nobody waits for us.
    const sched_param none{};
    ::sched_setscheduler(0, SCHED_BATCH, &none);
    for (;;) {
      const std::uint32_t seen = read_word(word_);
      bool found = false;
      while (look_at_one()) found = true;
      if (found) {
        std::this_thread::sleep_for(nap);
        continue;
      }
      sleeps_.store(true, std::memory_order_relaxed);
      full_fence();
      if (head_.load(std::memory_order_relaxed) == nullptr) wait_word(word_, seen, 3600.0);
      sleeps_.store(false, std::memory_order_relaxed);
    }
  }

  // One mapping in one operation, so that a fork meets it queued, kept or gone, and never in between.
  bool look_at_one() noexcept {
    const OperationGuard guard;
    std::unique_ptr<mapping_keeper::Node> node = pop();
    if (!node) return false;
    TQ_PAUSE_NOTHROW("keeper.before_look");
    if (has_written_pages(node->range.base, node->range.nbytes)) {
      mapping_budget::unmap(node->range.base, node->range.nbytes);
    } else {
      node->payload->kept().keep(node->range);
    }
    node.reset();  // with it perhaps the segment and all that is kept of it
    backlog_.fetch_sub(1, std::memory_order_release);
    return true;
  }

  // One popper (this process's thread, or the only thread of a child), so the head cannot be popped and pushed again in between.
  std::unique_ptr<mapping_keeper::Node> pop() noexcept {
    mapping_keeper::Node* node = head_.load(std::memory_order_acquire);
    while (node != nullptr &&
           !head_.compare_exchange_weak(node, node->next, std::memory_order_acquire, std::memory_order_acquire)) {
    }
    return std::unique_ptr<mapping_keeper::Node>(node);
  }

  std::mutex starting_;  // inside operations only: free at every fork
  std::atomic<bool> running_{false};
  std::atomic<mapping_keeper::Node*> head_{nullptr};
  std::atomic<std::uint64_t> backlog_{0};
  std::atomic<bool> sleeps_{false};
  std::atomic<std::uint32_t> word_{0};
};

}  // namespace

bool mapping_keeper::start() noexcept { return Keeper::instance().start(); }
bool mapping_keeper::running() noexcept { return Keeper::instance().running(); }
void mapping_keeper::retire(std::unique_ptr<Node> node) noexcept { Keeper::instance().push(std::move(node)); }
std::uint64_t mapping_keeper::backlog() noexcept { return Keeper::instance().backlog(); }

}  // namespace tq
