// Which pages of a private mapping were written.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tq {

// Whether [begin, begin + nbytes) of a private file mapping has a page of its own, present or swapped out. True also where the
// kernel does not say. One call with PAGEMAP_SCAN (Linux 6.7), else (or without `may_scan`) a read of /proc/self/pagemap,
// 8 bytes a page.
bool has_written_pages(const std::byte* begin, std::uint64_t nbytes, bool may_scan = true) noexcept;

}  // namespace tq
