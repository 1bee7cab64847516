#include "core/pause.hpp"

#include "core/error.hpp"

#ifdef TQ_PAUSE_POINTS

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <thread>

namespace tq {
namespace {

constexpr int disarmed = -1;

// Slots are claimed for ever and never move, so that passing a point takes no lock: a lock could be held by another thread at
// the moment of a fork, and the child would find it taken.
struct Slot {
  char name[64] = {};
  std::atomic<int> action{disarmed};
  std::atomic<int> passes_left{0};
  std::atomic<int> waiting{0};
  std::atomic<unsigned> resumed{0};
};

std::array<Slot, 64> slots;
std::atomic<std::size_t> n_slots{0};  // released after the slot's name was written
std::mutex claim_mutex;               // among those that arm
std::once_flag environment_read;
std::atomic<PauseHook> hook{nullptr};

Slot* find(std::string_view name) {
  const std::size_t n = n_slots.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < n; ++i) {
    if (name == slots[i].name) return &slots[i];
  }
  return nullptr;
}

void arm(std::string_view name, PauseAction action, int after) {
  if (name.empty() || name.size() >= sizeof(Slot::name)) {
    throw Error(ErrorCode::invalid, "pause point '" + std::string(name) + "': a name has 1 to 63 characters");
  }
  const std::lock_guard lock(claim_mutex);
  Slot* slot = find(name);
  if (slot == nullptr) {
    const std::size_t n = n_slots.load(std::memory_order_relaxed);
    if (n == slots.size()) throw Error(ErrorCode::invalid, "more pause points armed than there are slots");
    slot = &slots[n];
    std::memcpy(slot->name, name.data(), name.size());
    n_slots.store(n + 1, std::memory_order_release);
  }
  slot->passes_left.store(after, std::memory_order_relaxed);
  slot->action.store(static_cast<int>(action), std::memory_order_release);
}

// TRANSFERQUEUE_PAUSE="name=action[:after][,...]"; the only place that reads it.
void arm_from_environment() {
  const char* variable = std::getenv("TRANSFERQUEUE_PAUSE");
  std::string_view rest = variable == nullptr ? "" : variable;
  while (!rest.empty()) {
    std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      throw Error(ErrorCode::invalid, "TRANSFERQUEUE_PAUSE: '" + std::string(item) + "' is not name=action[:after]");
    }
    std::string_view action = item.substr(equals + 1);
    int after = 0;
    if (const std::size_t colon = action.find(':'); colon != std::string_view::npos) {
      const std::string_view number = action.substr(colon + 1);
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), after);
      if (error != std::errc() || end != number.data() + number.size()) {
        throw Error(ErrorCode::invalid, "TRANSFERQUEUE_PAUSE: '" + std::string(number) + "' is not a number of passes");
      }
      action = action.substr(0, colon);
    }
    arm(item.substr(0, equals), pause_action(std::string(action)), after);
  }
}

// Whether the caller is to throw.
bool pass(const char* name) {
  if (const PauseHook called = hook.load(std::memory_order_acquire)) called(name);
  std::call_once(environment_read, arm_from_environment);
  if (n_slots.load(std::memory_order_relaxed) == 0) return false;
  Slot* slot = find(name);
  if (slot == nullptr) return false;
  const int action = slot->action.load(std::memory_order_acquire);
  if (action == disarmed || slot->passes_left.fetch_sub(1, std::memory_order_relaxed) > 0) return false;
  switch (static_cast<PauseAction>(action)) {
    case PauseAction::kill:
      ::kill(::getpid(), SIGKILL);
      for (;;) ::pause();  // until the signal is delivered
    case PauseAction::freeze:
      slot->action.store(disarmed, std::memory_order_release);  // once
      ::kill(::getpid(), SIGSTOP);
      return false;
    case PauseAction::stop: {
      const unsigned before = slot->resumed.load(std::memory_order_acquire);
      slot->waiting.fetch_add(1);
      // Polled: a test's thread may wake a millisecond late, and a forked child finds nothing half locked.
      while (slot->resumed.load(std::memory_order_acquire) == before &&
             slot->action.load(std::memory_order_acquire) == action) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      slot->waiting.fetch_sub(1);
      return false;
    }
    case PauseAction::fail:
      return true;
    case PauseAction::delay:
      slot->waiting.fetch_add(1);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      slot->waiting.fetch_sub(1);
      return false;
  }
  return false;
}

}  // namespace

void pause_point(const char* name) {
  if (pass(name)) throw Error::system(std::string("pause point '") + name + "' was armed to fail", EIO);
}

void pause_point_nothrow(const char* name) noexcept { pass(name); }

void set_pause_hook(PauseHook called) noexcept { hook.store(called, std::memory_order_release); }

void arm_pause(const std::string& name, PauseAction action, int after) { arm(name, action, after); }

void resume_pause(const std::string& name) {
  if (Slot* slot = find(name)) {
    slot->action.store(disarmed, std::memory_order_release);
    slot->resumed.fetch_add(1, std::memory_order_release);
  }
}

bool is_paused(const std::string& name) {
  const Slot* slot = find(name);
  return slot != nullptr && slot->waiting.load() > 0;
}

}  // namespace tq

#else

namespace tq {

void arm_pause(const std::string& name, PauseAction, int) {
  throw Error(ErrorCode::invalid, "pause point '" + name + "' cannot be armed: this build has none (TQ_PAUSE_POINTS)");
}
void resume_pause(const std::string&) {}
bool is_paused(const std::string&) { return false; }

}  // namespace tq

#endif

namespace tq {

PauseAction pause_action(const std::string& text) {
  if (text == "kill") return PauseAction::kill;
  if (text == "freeze") return PauseAction::freeze;
  if (text == "stop") return PauseAction::stop;
  if (text == "fail") return PauseAction::fail;
  if (text == "delay") return PauseAction::delay;
  throw Error(ErrorCode::invalid, "pause action '" + text + "': it is kill, freeze, stop, fail or delay");
}

}  // namespace tq
