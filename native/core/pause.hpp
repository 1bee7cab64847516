// Named points at which a test can kill, stop or fail this process. `TQ_PAUSE("put.before_commit")` costs one relaxed load
// when nothing is armed and is not there at all unless TQ_PAUSE_POINTS is defined.
//
// A child process is armed through the environment, read once, at the first point passed:
//   TRANSFERQUEUE_PAUSE="name=action[:after][,name=action[:after]...]"    for instance "lease.stored=stop:2"
// where `after` is how many passes go by before the action happens (default 0).
//
// A thread stopped inside an operation or a deleter holds the fork gate (fork_gate.hpp): fork() waits for it.
#pragma once

#include <string>

namespace tq {

enum class PauseAction {
  kill,  // SIGKILL to this process
  freeze,  // SIGSTOP to this process: it goes on when somebody continues it
  stop,  // the thread waits until `resume_pause(name)`
  fail,  // throws Error(system, EIO); at a point that must not throw: nothing
  delay,  // the thread sleeps 300 ms: long enough for a fork to arrive, whose thread may hold what `resume` needs (the GIL)
};

#ifdef TQ_PAUSE_POINTS
inline constexpr bool pause_points_compiled = true;
void pause_point(const char* name);                   // throws what `fail` asks for
void pause_point_nothrow(const char* name) noexcept;  // for destructors and deleters
// Called by every thread at every point, armed or not, before anything else: a test that decides which thread takes the next
// step blocks in it. Null: none. For tests of one process; it must outlive the threads that pass points.
using PauseHook = void (*)(const char* name);
void set_pause_hook(PauseHook hook) noexcept;
#define TQ_PAUSE(name) ::tq::pause_point(name)
#define TQ_PAUSE_NOTHROW(name) ::tq::pause_point_nothrow(name)
#else
inline constexpr bool pause_points_compiled = false;
#define TQ_PAUSE(name) static_cast<void>(0)
#define TQ_PAUSE_NOTHROW(name) static_cast<void>(0)
#endif

// Error(invalid) when the points are not compiled in: a test that arms nothing would test nothing.
void arm_pause(const std::string& name, PauseAction action, int after = 0);
// By its name; Error(invalid) when there is none of that name.
PauseAction pause_action(const std::string& text);
// Disarms the point and lets every thread stopped there go on. Nothing happens when none is.
void resume_pause(const std::string& name);
// A thread waits at that point now.
bool is_paused(const std::string& name);

}  // namespace tq
