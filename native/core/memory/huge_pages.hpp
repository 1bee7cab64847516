// Huge pages under the payload: asked for, used where the kernel gives them, never needed.
//
// tmpfs backs a segment with 4 KiB pages (shmem_enabled is "never" by default). The service turns ranges that are in use into
// huge pages with MADV_COLLAPSE (Linux 6.1), which asks for them whatever the sysfs default is, short of "deny". The kernel
// moves the pages under their locks: contents, leases and other mappings are not disturbed, and an access meanwhile waits.
// A mapping sees a huge page as one entry when its address and its file offset agree modulo the size of a huge page, so
// that mapping W afresh costs 34 faults instead of 1,073. A page that is written privately splits the entry again, in that
// mapping only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tq::huge_pages {

// Of one huge page; 0 where the system has none, or so large ones (512 MiB with 64 KiB base pages) that they would waste more
// than they save.
std::uint64_t nbytes() noexcept;

// mmap of a file where huge pages of it can be mapped as such: at an address that agrees with `offset` modulo a huge page if
// there is one and the range can hold one, anywhere else otherwise. MAP_FAILED with errno.
void* map_file(std::uint64_t range_nbytes, int protection, int flags, int fd, std::uint64_t offset) noexcept;

enum class Collapse {
  made,        // it is one huge page now (it may have been before)
  later,       // memory is short or fragmented, or a page is in use by the kernel
  impossible,  // this kernel, this file system, or nothing is there
};
// Makes the huge page at `begin` (aligned), inside a shared mapping.
Collapse collapse(std::byte* begin) noexcept;

}  // namespace tq::huge_pages
