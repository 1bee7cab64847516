// Keeps fork() out of our critical sections. Two gates, entered shared by everybody and exclusively by fork's prepare:
//   operations  calls of the store: transactions, lease changes, allocation, copies. May last long.
//   deleters    destructors that drop views and leases, on any thread, also inside the garbage collector. Always short.
// prepare closes `operations`, waits until it is empty, then does the same with `deleters`: a deleter therefore never waits
// for a long operation, only for the writing of the hand-over.
//
// Why this cannot deadlock:
//  * prepare runs on the forking thread, which is not inside an operation: an operation calls no Python and no user code, so
//    nothing in it can fork. (Signal handlers of Python run between byte codes, never inside.)
//  * what prepare waits for never waits for the forking thread: an operation holds no GIL and needs none while inside; a
//    deleter may hold the GIL, but only takes short native mutexes. Sleeps (futex waits, back-pressure) belong outside the
//    guard, or in slices.
//  * an operation may run deleters, on its own thread, also while prepare waits: entries nest per thread and are counted once.
//    Order: operations before deleters, in prepare as in everybody. What a deleter calls may be written as an operation; it
//    does not enter that gate (it would be the wrong order): the fork cannot happen before the deleter is through.
//  * a deleter on the forking thread between prepare and parent (an allocator's own fork handler, say) passes freely.
//
// The count is process-private memory: in the child, where only the forking thread exists, it starts from zero.
#pragma once

#include <memory>
#include <utility>

namespace tq {

// Inside an operation while it lives. Nestable, scoped. Do not hold it while sleeping for somebody else's progress.
class OperationGuard {
 public:
  OperationGuard() noexcept;
  ~OperationGuard();
  OperationGuard(const OperationGuard&) = delete;
  OperationGuard& operator=(const OperationGuard&) = delete;

 private:
  const bool entered_;  // the outermost of this thread
};

// Inside a deleter while it lives. Nestable, scoped.
class DeleterGuard {
 public:
  DeleterGuard() noexcept;
  ~DeleterGuard();
  DeleterGuard(const DeleterGuard&) = delete;
  DeleterGuard& operator=(const DeleterGuard&) = delete;

 private:
  const bool entered_;
};

// Deletes inside a DeleterGuard: for shared_ptr, so that a fork meets whole objects only.
struct GuardedDelete {
  template <typename T>
  void operator()(T* object) const noexcept {
    const DeleterGuard guard;
    delete object;
  }
};

// std::shared_ptr to an object that is made inside an OperationGuard and deleted inside a DeleterGuard.
template <typename T, typename... Arguments>
std::shared_ptr<T> make_guarded(Arguments&&... arguments) {
  const OperationGuard guard;
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), GuardedDelete{});
}

// For fork_registry.cpp only.
namespace fork_gate {
void close_all() noexcept;        // prepare
void open_all() noexcept;         // parent
void reset_in_child() noexcept;   // child
}  // namespace fork_gate

}  // namespace tq
