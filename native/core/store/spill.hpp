// Moving cold blocks from memory to the spill file.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "core/store/attachment.hpp"

namespace tq {

// When a block was used last, as the block table keeps it: in units of 134 ms (2^27 ns) of the monotonic clock, which is one
// for all processes. Coarse, so that a block read a thousand times a second is noted seven times.
inline std::uint32_t use_time(std::chrono::steady_clock::time_point now) noexcept {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(now.time_since_epoch().count()) >> 27);
}

// Moves whole blocks, those that were used longest ago first and none that anybody leases, until `nbytes` of memory are free
// more than before, and a little further, since looking for them costs a look at every block. Returns the bytes that became
// free; 0: no spill file, no block that could go, no room on the disk. Error(corrupt): the file was cut; Error(system): the disk
// failed. Whatever happens, no row is lost: it names the old block or the new one.
// `contiguous`: instead of the coldest blocks those that leave `nbytes` free in one piece, of such the ones whose youngest was
// used longest ago. For who had room enough given back and cannot use it, as it lies in pieces.
std::uint64_t spill_cold(Attachment& attachment, Index& index, std::uint64_t nbytes, bool contiguous);

// A place in the spill file for a block that is made there: one that is loaded when memory is full. Nullopt: no room on the disk.
// The result is backed and its slot of the block table exists.
std::optional<Reservation> find_spill_room(Attachment& attachment, Index& index, std::uint64_t nbytes, OwnerId owner);

// Backs more of the spill file, so that `nbytes` more are free there if the disk has them. False: it has not.
bool grow_spill_file(Attachment& attachment, Index& index, std::uint64_t nbytes);

}  // namespace tq
