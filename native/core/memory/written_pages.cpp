#include "core/memory/written_pages.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/memory/segment.hpp"

namespace tq {

namespace {

// As in linux/fs.h of 6.7, which older headers lack.
struct ScanArgument {
  std::uint64_t size, flags, start, end, walk_end, regions, regions_length, max_pages;
  std::uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
struct Region {
  std::uint64_t start, end, categories;
};
constexpr std::uint64_t category_file = 1u << 2, category_present = 1u << 3, category_swapped = 1u << 4;
const unsigned long pagemap_scan = _IOWR('f', 16, ScanArgument);

enum class Answer { written, untouched, unknown };

// Pages that are there and do not belong to a file; the first one is enough.
Answer scan(int pagemap, std::uint64_t begin, std::uint64_t end) noexcept {
  Region found{};
  ScanArgument argument{};
  argument.size = sizeof argument;
  argument.start = begin;
  argument.end = end;
  argument.regions = reinterpret_cast<std::uint64_t>(&found);
  argument.regions_length = 1;
  argument.max_pages = 1;
  argument.category_inverted = category_file;
  argument.category_mask = category_file;
  argument.category_anyof_mask = category_present | category_swapped;
  argument.return_mask = category_present;
  const int regions = ::ioctl(pagemap, pagemap_scan, &argument);
  if (regions < 0) return Answer::unknown;
  return regions > 0 ? Answer::written : argument.walk_end == end ? Answer::untouched : Answer::unknown;
}

Answer read_entries(int pagemap, std::uint64_t begin, std::uint64_t end) noexcept {
  constexpr std::uint64_t present = std::uint64_t{1} << 63, swapped = std::uint64_t{1} << 62, of_file = std::uint64_t{1} << 61;
  std::array<std::uint64_t, 512> entries;
  const std::uint64_t page = page_bytes();
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t pages = std::min<std::uint64_t>(entries.size(), (end - at) / page);
    const auto wanted = static_cast<ssize_t>(pages * 8);
    if (::pread(pagemap, entries.data(), static_cast<std::size_t>(wanted), static_cast<off_t>(at / page * 8)) != wanted) {
      return Answer::unknown;
    }
    for (std::uint64_t i = 0; i < pages; ++i) {
      if ((entries[i] & (present | swapped)) != 0 && (entries[i] & of_file) == 0) return Answer::written;
    }
    at += pages * page;
  }
  return Answer::untouched;
}

}  // namespace

bool has_written_pages(const std::byte* begin, std::uint64_t nbytes, bool may_scan) noexcept {
  const FileDescriptor pagemap(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (pagemap.get() < 0) return true;
  const auto start = reinterpret_cast<std::uint64_t>(begin);
  const std::uint64_t page = page_bytes();
  const std::uint64_t end = start + (nbytes + page - 1) / page * page;
  Answer answer = may_scan ? scan(pagemap.get(), start, end) : Answer::unknown;
  if (answer == Answer::unknown) answer = read_entries(pagemap.get(), start, end);
  return answer != Answer::untouched;
}

}  // namespace tq
