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
//    A deleter enters no operation. Order: operations before deleters, in prepare as in everybody.
//  * a deleter on the forking thread between prepare and parent (an allocator's own fork handler, say) passes freely.
//
// The count is process-private memory: in the child, where only the forking thread exists, it starts from zero.
#pragma once

namespace tq {

// Inside an operation while it lives. Nestable. Do not hold it while sleeping for somebody else's progress.
class OperationGuard {
 public:
  OperationGuard() noexcept;
  ~OperationGuard();
  OperationGuard(const OperationGuard&) = delete;
  OperationGuard& operator=(const OperationGuard&) = delete;
};

// Inside a deleter while it lives. Nestable, also inside an OperationGuard; never the other way round.
class DeleterGuard {
 public:
  DeleterGuard() noexcept;
  ~DeleterGuard();
  DeleterGuard(const DeleterGuard&) = delete;
  DeleterGuard& operator=(const DeleterGuard&) = delete;
};

// For fork_registry.cpp only.
namespace fork_gate {
void close_all() noexcept;        // prepare
void open_all() noexcept;         // parent
void reset_in_child() noexcept;   // child
}  // namespace fork_gate

}  // namespace tq
