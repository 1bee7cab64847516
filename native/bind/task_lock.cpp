#include "bind/task_lock.hpp"

#include <utility>

#include "bind/classes.hpp"
#include "bind/gil.hpp"

namespace nb = nanobind;

namespace tq::bind {

TaskLockContext::TaskLockContext(Store& store, std::string partition, std::string task, double timeout_s)
    : store_(store), partition_(std::move(partition)), task_(std::move(task)), timeout_s_(timeout_s) {}

void TaskLockContext::enter() {
  if (lock_) throw Error(ErrorCode::invalid, "lock_task: entered twice");
  lock_ = store_.lock_task(partition_, task_, timeout_s_, check_signals);
}

void TaskLockContext::leave() noexcept { lock_.reset(); }

void bind_task_lock(nb::module_& module) {
  nb::class_<TaskLockContext>(module, "_TaskLock", "The lock of one (partition, task); see Store.lock_task.")
      .def(
          "__enter__",
          [](nb::handle self) {
            TaskLockContext& context = nb::cast<TaskLockContext&>(self);
            without_gil([&] { context.enter(); });
            return nb::borrow(self);
          })
      .def("__exit__", [](TaskLockContext& self, const nb::args&) { self.leave(); });
}

}  // namespace tq::bind
