#include "core/memory/mapping_budget.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <fstream>

namespace tq {

namespace {

// Relaxed throughout: a count, that orders nothing.
std::atomic<std::int64_t> mappings{0};
std::atomic<std::int64_t> test_limit{0};

std::int64_t system_limit() {
  static const std::int64_t limit = [] {
    std::int64_t areas = 0;
    if (!(std::ifstream("/proc/sys/vm/max_map_count") >> areas) || areas <= 0) areas = 65530;
    return areas / 4 * 3;
  }();
  return limit;
}

}  // namespace

MappingLimitError::MappingLimitError(const std::string& what) : Error(ErrorCode::system, what) { errno_value = ENOMEM; }

std::int64_t mapping_budget::alive() noexcept { return mappings.load(std::memory_order_relaxed); }

std::int64_t mapping_budget::limit() noexcept {
  const std::int64_t limit = test_limit.load(std::memory_order_relaxed);
  return limit > 0 ? limit : system_limit();
}

void mapping_budget::acquire() {
  if (mappings.fetch_add(1, std::memory_order_relaxed) < limit()) return;
  release();
  throw MappingLimitError("this process has " + std::to_string(limit()) +
                          " views mapped, three quarters of what vm.max_map_count allows");
}

void mapping_budget::release() noexcept { mappings.fetch_sub(1, std::memory_order_relaxed); }

void mapping_budget::unmap(std::byte* base, std::uint64_t nbytes) noexcept {
  ::munmap(base, nbytes);
  release();
}

void mapping_budget::set_limit_for_tests(std::int64_t limit) noexcept { test_limit.store(limit, std::memory_order_relaxed); }

}  // namespace tq
