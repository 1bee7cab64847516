// Where the interpreter lock is given up and taken back.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

namespace tq::bind {

// Native work without the GIL: arguments are converted before, the result after, and no Python object is touched inside
// (inside may hold the fork gate or a lock that a thread with the GIL waits for).
template <typename Work>
auto without_gil(Work&& work) {
  const nanobind::gil_scoped_release release;
  return std::forward<Work>(work)();
}

// Between the slices of a wait, outside every lock: runs signal handlers and throws what they raise (Ctrl-C).
inline void check_signals() {
  const nanobind::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

}  // namespace tq::bind
