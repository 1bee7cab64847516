// The context manager that Store.lock_task returns.
#pragma once

#include <memory>
#include <string>

#include "core/store/store.hpp"

namespace tq::bind {

// Takes the lock on entering and lets go on leaving, both on one thread. Not reentrant; usable again after it was left.
class TaskLockContext {
 public:
  // `store` outlives this object.
  TaskLockContext(Store& store, std::string partition, std::string task, double timeout_s);
  void enter();  // Error(timeout) names the holder
  void leave() noexcept;

 private:
  Store& store_;
  std::string partition_;
  std::string task_;
  double timeout_s_;
  std::unique_ptr<TaskLock> lock_;
};

}  // namespace tq::bind
