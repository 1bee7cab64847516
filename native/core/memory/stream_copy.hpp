// Copying past the caches, for amounts that would not stay in them: a plain store first reads the line that it overwrites, and
// pushes out what other code has there. Measured in docs/decisions/013-copying.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tq {

// Like std::memcpy. The stores are not ordered by a release fence (x86 orders streaming stores by none but sfence):
// `stream_fence` does, on the thread that copied, before anybody is told.
void stream_copy(std::byte* destination, const std::byte* source, std::uint64_t nbytes) noexcept;
void stream_fence() noexcept;

}  // namespace tq
