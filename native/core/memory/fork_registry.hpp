// What happens around fork(), once per process through pthread_atfork: prepare closes the fork gate (fork_gate.hpp) and asks
// every participant; then the parent's or the child's half runs and the gate opens.
//
// A participant registers in its constructor and leaves in its destructor. Both must happen inside an OperationGuard or a
// DeleterGuard that spans the *whole* construction or destruction (make_guarded and GuardedDelete of fork_gate.hpp), else a
// fork could call the hooks of half an object. Hooks run in order of registration, on the forking thread, with no other
// thread of this process inside an operation or a deleter; they must not throw (pthread_atfork has nobody to tell): a
// participant that fails remembers it and says so at the next call in the child.
// malloc and mutexes work in the child's hooks: glibc makes its heap usable there, and ours are free because the gate is empty.
//
// Not covered, by nature: vfork and posix_spawn (they run no handlers and share memory until exec; close-on-exec drops what
// they hold) and a raw clone() without exec.
#pragma once

namespace tq {

class ForkParticipant {
 public:
  ForkParticipant(const ForkParticipant&) = delete;
  ForkParticipant& operator=(const ForkParticipant&) = delete;

  virtual void before_fork() noexcept {}
  virtual void after_fork_in_parent() noexcept {}
  virtual void after_fork_in_child() noexcept {}

 protected:
  ForkParticipant();
  virtual ~ForkParticipant();

 private:
  friend struct ForkRegistry;
  ForkParticipant* previous_ = nullptr;
  ForkParticipant* next_ = nullptr;
};

}  // namespace tq
