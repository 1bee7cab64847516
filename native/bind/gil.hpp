// Where the interpreter lock is given up and taken back.
//
// At the end of the interpreter a daemon thread that asks for the lock is ended by CPython (before 3.14) with pthread_exit,
// which unwinds the stack like an exception and must not be swallowed. It would meet destructors that may not throw and
// nanobind's catch (...): the process would abort at exit, for no fault of the user. Such a thread sleeps here instead,
// as it does in CPython from 3.14 on; the process ends without it. Python code asks for the lock, too, whenever another
// thread wanted it meanwhile: what we call of it goes by the same way.
#pragma once

#include <nanobind/nanobind.h>

#include <cxxabi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/patience.hpp"

namespace tq::bind {

// `call` takes the lock, or runs Python code; it holds nothing whose destructor needs the lock.
template <typename Call>
auto return_or_sleep(Call&& call) noexcept {
#ifdef __GLIBCXX__
  try {
    return call();
  } catch (abi::__forced_unwind&) {
    for (;;) ::pause();
  }
#else
  return call();
#endif
}

// Native work without the GIL: arguments are converted before, the result after, and no Python object is touched inside
// (inside may hold the fork gate or a lock that a thread with the GIL waits for).
template <typename Work>
auto without_gil(Work&& work) {
  class Released {
   public:
    Released() : state_(PyEval_SaveThread()) {}
    ~Released() { return_or_sleep([this] { PyEval_RestoreThread(state_); }); }
    Released(const Released&) = delete;
    Released& operator=(const Released&) = delete;

   private:
    PyThreadState* state_;
  };
  const Released released;
  return std::forward<Work>(work)();
}

// A method bound as it is, called without the GIL.
template <typename Result, typename Class, typename... Arguments>
auto nogil(Result (Class::*method)(Arguments...)) {
  return [method](Class& self, Arguments... arguments) {
    return without_gil([&] { return (self.*method)(arguments...); });
  };
}
template <typename Result, typename Class, typename... Arguments>
auto nogil(Result (Class::*method)(Arguments...) const) {
  return [method](const Class& self, Arguments... arguments) {
    return without_gil([&] { return (self.*method)(arguments...); });
  };
}

// Between the slices of a wait, outside every lock: runs signal handlers and throws what they raise (Ctrl-C).
inline void check_signals() {
  class Acquired {
   public:
    Acquired() : state_(return_or_sleep([] { return PyGILState_Ensure(); })) {}
    ~Acquired() { PyGILState_Release(state_); }
    Acquired(const Acquired&) = delete;
    Acquired& operator=(const Acquired&) = delete;

   private:
    PyGILState_STATE state_;
  };
  const Acquired acquired;
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

// As without_gil, of a call that changes the session: while it waits for the session's write lock, signal handlers run (and
// what they raise ends it), see FirstWait. `work` may be called several times; all of it together waits for so long.
template <typename Work>
auto changing(std::optional<double> lock_timeout_s, Work&& work) {
  using Clock = std::chrono::steady_clock;
  constexpr double slice_s = 0.1;
  constexpr double otherwise_s = 30.0;  // as the gate has it
  const double whole_s = lock_timeout_s.value_or(otherwise_s);
  const auto began = Clock::now();
  for (;;) {
    const double left_s = std::max(0.0, whole_s - std::chrono::duration<double>(Clock::now() - began).count());
    const bool last = left_s <= slice_s;
    try {
      return without_gil([&] {
        const Patience patience(lock_timeout_s ? std::optional(left_s) : std::nullopt);
        const FirstWait first(std::min(slice_s, left_s), whole_s, last);
        return work();
      });
    } catch (const Error& error) {
      if (!error.nothing_done) throw;
    }
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  }
}

}  // namespace tq::bind
