// Private memory for rows that are gathered. A fresh page costs more than copying into it (measured: 64 MB into fresh pages of
// 4 KiB 23 ms, into huge pages 6 ms, into warm memory 3.7 ms), so large buffers are recycled: a buffer whose last tensor died
// waits here for the next gather of about its size, up to `gather_pool_limit_nbytes` in a process. A buffer is with one owner or
// in the pool, never both; the next owner writes every byte that it shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tq {

inline constexpr std::uint64_t gather_pool_limit_nbytes = 128u << 20;

// At least `nbytes` (> 0) of memory, aligned to 64 bytes, of any content. The last copy of the pointer gives it back, on any
// thread. Inside an operation. MappingLimitError (or std::bad_alloc, below 128 KiB).
std::shared_ptr<std::byte> gather_buffer(std::uint64_t nbytes);

// Memory of this process that waits for the next gather.
std::uint64_t pooled_gather_nbytes() noexcept;
// Gives it back to the system; bytes.
std::uint64_t trim_gather_pool();

}  // namespace tq
