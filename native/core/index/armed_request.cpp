#include "core/index/armed_request.hpp"

#include <pthread.h>

#include "core/error.hpp"

namespace tq::index {
namespace {

// What this thread has armed is kept until it arms another one or ends, so that nothing is freed that it still looks at.
std::shared_ptr<ArmedRequest>& kept_by_thread() {
  static thread_local std::shared_ptr<ArmedRequest> kept;
  return kept;
}

}  // namespace

constinit thread_local const ArmedRequest* ArmedRequest::armed_ = nullptr;

void ArmedRequest::arm(const std::shared_ptr<ArmedRequest>& request) {
  // The thread that forks goes on in the child, where nobody waits for this answer.
  [[maybe_unused]] static const int once = pthread_atfork(nullptr, nullptr, [] { armed_ = nullptr; });
  if (armed_ != nullptr && armed_->open_.load(std::memory_order_relaxed)) {
    throw Error(ErrorCode::invalid, "request: this thread is in the middle of another one");
  }
  if (request->was_armed_.exchange(true)) throw Error(ErrorCode::invalid, "request: entered twice");
  kept_by_thread() = request;
  request->open_.store(true, std::memory_order_relaxed);
  armed_ = request.get();
}

}  // namespace tq::index
