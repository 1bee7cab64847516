// The fences of the protocols, in one place because the thread sanitizer does not model std::atomic_thread_fence (gcc even
// warns). Under it a fence is a read-modify-write of one process-wide atomic: at least as strong, and modelled. Between
// processes the sanitizer sees nothing anyway; there the plain fences are what is argued about.
#pragma once

#include <atomic>

namespace tq {

#if defined(__SANITIZE_THREAD__)
inline std::atomic<int> fence_of_the_sanitizer{0};
#endif

// Sequentially consistent: no load after it is ordered before a store before it (Dekker's condition).
inline void full_fence() noexcept {
#if defined(__SANITIZE_THREAD__)
  fence_of_the_sanitizer.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace tq
