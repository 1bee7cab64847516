// Since when the oldest read of the index is known to be in progress. Readers tell nobody (a get must not write to a shared line),
// so whoever looks at the reader table notes what it saw: the service does once a second, and so do all who ask.
//
//   word = pid, 22 bits | commit that it sees, 16 bits | CLOCK_BOOTTIME in seconds, 26 bits;  0: none was seen at the last look
#pragma once

#include <atomic>
#include <cstdint>

namespace tq {

// Seconds since this read (of that process, at that commit) was first seen; 0 for one that was not seen before. Relaxed: one
// word, for people.
std::uint64_t note_oldest_read(std::atomic<std::uint64_t>& word, std::int64_t pid, std::uint64_t txn) noexcept;
inline void note_no_old_read(std::atomic<std::uint64_t>& word) noexcept { word.store(0, std::memory_order_relaxed); }

}  // namespace tq
