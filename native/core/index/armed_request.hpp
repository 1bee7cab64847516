// What a thread has armed: see requests.hpp.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "core/index/request_record.hpp"

namespace tq::index {

class Env;

// Nothing of it passes to a forked child.
class ArmedRequest {
 public:
  ArmedRequest(const Env* env, const RequestId& id, std::string reply) : id(id), reply(std::move(reply)), env_(env) {}

  // What this thread has armed for that index and has not used up; null mostly. One look at a thread-local.
  static const ArmedRequest* of(const Env* env) noexcept {
    if (armed_ == nullptr) [[likely]] return nullptr;
    return armed_->env_ == env && armed_->open_.load(std::memory_order_relaxed) ? armed_ : nullptr;
  }
  // Arms the calling thread. Error(invalid) when it is armed already, or `request` was armed before.
  static void arm(const std::shared_ptr<ArmedRequest>& request);
  // Used up, or no longer wanted. Any thread.
  void close() const noexcept { open_.store(false, std::memory_order_relaxed); }

  const RequestId id;
  const std::string reply;

 private:
  static constinit thread_local const ArmedRequest* armed_;

  const Env* env_;
  mutable std::atomic<bool> open_{false};
  std::atomic<bool> was_armed_{false};
};

}  // namespace tq::index
