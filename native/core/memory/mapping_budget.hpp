// How many mappings of blocks this process may have at once. The kernel allows vm.max_map_count areas a process (65,530 by
// default) and fails *any* mmap beyond it, also of threads, allocators and libraries: so views stop at a share of it, early
// and with an error of their own, which callers turn into a copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.hpp"

namespace tq {

// No further mapping: the budget is used up, or mmap said ENOMEM (RLIMIT_AS, vm.max_map_count, vm.overcommit_memory=2, which
// charges private mappings in full). The caller copies instead.
class MappingLimitError : public Error {
 public:
  explicit MappingLimitError(const std::string& what);
};

namespace mapping_budget {
void acquire();           // MappingLimitError
void release() noexcept;
void unmap(std::byte* base, std::uint64_t nbytes) noexcept;  // and releases
std::int64_t alive() noexcept;
std::int64_t limit() noexcept;  // three quarters of vm.max_map_count
void set_limit_for_tests(std::int64_t limit) noexcept;  // 0: the real one again
}  // namespace mapping_budget

}  // namespace tq
