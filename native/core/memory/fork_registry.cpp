#include "core/memory/fork_registry.hpp"

#include <pthread.h>

#include <cerrno>
#include <mutex>

#include "core/error.hpp"
#include "core/memory/fork_gate.hpp"

namespace tq {

// A doubly linked list, since a view joins and leaves at every get. Never destroyed: views may die after static objects.
struct ForkRegistry {
  std::mutex one_fork;  // two threads that fork at once take turns
  std::mutex list;      // for joining and leaving only: hooks run with everybody excluded
  ForkParticipant* first = nullptr;
  ForkParticipant* last = nullptr;

  static ForkRegistry& instance() {
    static auto* registry = new ForkRegistry();
    return *registry;
  }

  template <typename Hook>
  void each(Hook hook) noexcept {
    for (ForkParticipant* participant = first; participant != nullptr; participant = participant->next_) hook(*participant);
  }

  static void prepare() noexcept {
    ForkRegistry& registry = instance();
    registry.one_fork.lock();
    fork_gate::close_all();
    registry.each([](ForkParticipant& participant) { participant.before_fork(); });
  }
  static void parent() noexcept {
    ForkRegistry& registry = instance();
    registry.each([](ForkParticipant& participant) { participant.after_fork_in_parent(); });
    fork_gate::open_all();
    registry.one_fork.unlock();
  }
  static void child() noexcept {
    ForkRegistry& registry = instance();
    registry.each([](ForkParticipant& participant) { participant.after_fork_in_child(); });
    fork_gate::reset_in_child();
    registry.one_fork.unlock();
  }
};

ForkParticipant::ForkParticipant() {
  static const int handlers = ::pthread_atfork(ForkRegistry::prepare, ForkRegistry::parent, ForkRegistry::child);
  if (handlers != 0) throw Error::system("cannot register fork handlers", handlers);
  ForkRegistry& registry = ForkRegistry::instance();
  const std::lock_guard lock(registry.list);
  previous_ = registry.last;
  (previous_ != nullptr ? previous_->next_ : registry.first) = this;
  registry.last = this;
}

ForkParticipant::~ForkParticipant() {
  ForkRegistry& registry = ForkRegistry::instance();
  const std::lock_guard lock(registry.list);
  (previous_ != nullptr ? previous_->next_ : registry.first) = next_;
  (next_ != nullptr ? next_->previous_ : registry.last) = previous_;
}

}  // namespace tq
