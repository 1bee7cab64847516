// Runs a few threads in every order of their steps. A step ends at a pause point of the core (or at `step()` in a test): one
// thread runs at a time, and at each point the schedule says who goes on. Schedules are enumerated depth first; with a bound on
// how often a thread that could go on is passed over (preemptions), since most errors need few.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/pause.hpp"

namespace tq_test {

class EveryOrder {
 public:
  // `only`: points at which a step ends; others are passed.
  explicit EveryOrder(std::vector<std::string> only, int preemptions = 1 << 20)
      : points_(std::move(only)), preemptions_(preemptions) {}

  // Calls `prepare` and then the works, each in a thread, in one order; then `judge`. Until every order has been. Returns how many.
  std::uint64_t run(const std::function<void()>& prepare, const std::vector<std::function<void()>>& works,
                    const std::function<void()>& judge) {
    std::uint64_t orders = 0;
    choices_.clear();
    do {
      prepare();
      one_order(works);
      judge();
      ++orders;
    } while (next());
    return orders;
  }

  // A point of the test's own.
  static void step() { pass("test.step"); }

 private:
  struct Choice {
    std::vector<std::size_t> open;  // who could have gone on, the one before first
    std::size_t taken = 0;          // index into it
    int preemptions = 0;            // up to here
  };

  void one_order(const std::vector<std::function<void()>>& works) {
    done_.assign(works.size(), false);
    turn_ = nobody;
    depth_ = 0;
    last_ = nobody;
    current_ = this;
    tq::set_pause_hook(&pass);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < works.size(); ++i) {
      threads.emplace_back([this, i, &works] {
        me_ = i;
        wait_for_turn(i);
        works[i]();
        const std::lock_guard lock(mutex_);
        done_[i] = true;
        choose();
        me_ = nobody;
      });
    }
    {
      const std::lock_guard lock(mutex_);
      choose();
    }
    for (std::thread& thread : threads) thread.join();
    tq::set_pause_hook(nullptr);
  }

  static void pass(const char* name) {
    if (me_ == nobody) return;  // a thread of the core's own, or of the test
    EveryOrder& order = *current_;
    bool ends_here = std::string("test.step") == name;
    for (const std::string& point : order.points_) ends_here = ends_here || point == name;
    if (!ends_here) return;
    {
      const std::lock_guard lock(order.mutex_);
      order.choose();
    }
    order.wait_for_turn(me_);
  }

  void wait_for_turn(std::size_t i) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return turn_ == i; });
  }

  // Under mutex_. By the schedule as far as it goes, then the first that can go on.
  void choose() {
    std::vector<std::size_t> open;
    if (last_ != nobody && !done_[last_]) open.push_back(last_);
    for (std::size_t i = 0; i < done_.size(); ++i) {
      if (!done_[i] && i != last_) open.push_back(i);
    }
    turn_ = nobody;
    if (!open.empty()) {
      if (depth_ == choices_.size()) {
        choices_.push_back({open, 0, choices_.empty() ? 0 : choices_.back().preemptions});
      }
      Choice& choice = choices_[depth_];
      choice.open = open;  // the same, as long as the works are deterministic
      turn_ = open[choice.taken];
      if (last_ != nobody && !done_[last_] && turn_ != last_) {
        choice.preemptions = (depth_ == 0 ? 0 : choices_[depth_ - 1].preemptions) + 1;
      } else {
        choice.preemptions = depth_ == 0 ? 0 : choices_[depth_ - 1].preemptions;
      }
      last_ = turn_;
      ++depth_;
    }
    changed_.notify_all();
  }

  // The next schedule, or false.
  bool next() {
    choices_.resize(depth_);
    while (!choices_.empty()) {
      Choice& choice = choices_.back();
      const int before = choices_.size() < 2 ? 0 : choices_[choices_.size() - 2].preemptions;
      // Of those in `open` only the first is no preemption, and that only where the one before can still go on.
      const bool goes_on = choices_.size() >= 2 && choice.open[0] == previous(choices_.size() - 1);
      if (choice.taken + 1 < choice.open.size() && (!goes_on || before < preemptions_)) {
        ++choice.taken;
        return true;
      }
      choices_.pop_back();
    }
    return false;
  }
  std::size_t previous(std::size_t depth) const { return choices_[depth - 1].open[choices_[depth - 1].taken]; }

  static constexpr std::size_t nobody = ~std::size_t{0};
  const std::vector<std::string> points_;
  const int preemptions_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Choice> choices_;
  std::vector<bool> done_;
  std::size_t turn_ = nobody;
  std::size_t last_ = nobody;
  std::size_t depth_ = 0;
  static inline EveryOrder* current_ = nullptr;
  static inline thread_local std::size_t me_ = nobody;
};

}  // namespace tq_test
