#include "core/memory/huge_pages.hpp"

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <fstream>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1; older headers lack the name
#endif

namespace tq::huge_pages {

namespace {

constexpr std::uint64_t largest_useful = 32u << 20;
constexpr std::uint64_t window_nbytes = std::uint64_t{64} << 30;

std::uint64_t read_size() {
  std::uint64_t size = 0;
  std::ifstream("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size") >> size;
  const bool power_of_two = size != 0 && (size & (size - 1)) == 0;
  return power_of_two && size <= largest_useful ? size : 0;
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

// Addresses that were free a moment ago, the first one aligned to `unit`; 0 when there are none (RLIMIT_AS).
std::uint64_t free_addresses(std::uint64_t range_nbytes, std::uint64_t unit) noexcept {
  void* probe = ::mmap(nullptr, range_nbytes + unit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED) return 0;
  ::munmap(probe, range_nbytes + unit);
  return round_up(reinterpret_cast<std::uint64_t>(probe), unit);
}

// Where to ask for the next mapping. Places are handed out round and round in a window of addresses, so that asking costs an
// addition; a hint that is taken is ignored by the kernel, and the mapping then only lacks huge entries.
std::uint64_t next_hint(std::uint64_t range_nbytes, std::uint64_t unit) noexcept {
  if (range_nbytes > window_nbytes / 4) return free_addresses(range_nbytes, unit);
  static const std::uint64_t window = free_addresses(window_nbytes, unit);
  static std::atomic<std::uint64_t> cursor{0};  // relaxed: two mappings that get one place only lose their alignment
  if (window == 0) return 0;
  const std::uint64_t step = round_up(range_nbytes, unit) + unit;
  std::uint64_t at = cursor.fetch_add(step, std::memory_order_relaxed);
  if (at + step > window_nbytes) {
    at = 0;
    cursor.store(step, std::memory_order_relaxed);
  }
  return window + at;
}

}  // namespace

std::uint64_t nbytes() noexcept {
  static const std::uint64_t size = read_size();
  return size;
}

void* map_file(std::uint64_t range_nbytes, int protection, int flags, int fd, std::uint64_t offset) noexcept {
  const std::uint64_t unit = nbytes();
  std::uint64_t hint = 0;
  if (unit != 0 && range_nbytes >= unit) hint = next_hint(range_nbytes, unit);
  if (hint != 0) hint += offset % unit;
  return ::mmap(reinterpret_cast<void*>(hint), range_nbytes, protection, flags, fd, static_cast<off_t>(offset));
}

Collapse collapse(std::byte* begin) noexcept {
  if (::madvise(begin, nbytes(), MADV_COLLAPSE) == 0) return Collapse::made;
  return errno == EINVAL || errno == EPERM || errno == ENOSYS ? Collapse::impossible : Collapse::later;
}

}  // namespace tq::huge_pages
