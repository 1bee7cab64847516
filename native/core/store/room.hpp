// Finding room: reserve, then reclaim, then grow the backed part. Waiting is the caller's.
#pragma once

#include <cstdint>
#include <optional>

#include "core/store/attachment.hpp"

namespace tq {

// Nullopt when nothing helped now. Error(storage_full) at once when the whole segment is too small.
// The result is backed and its slot of the block table exists.
std::optional<Reservation> find_room(Attachment& attachment, Index& index, std::uint64_t nbytes, OwnerId owner);
// The same for a put that is about to be copied and published: a small one comes from what was reserved ahead, mostly without
// a transaction, and may be a little larger than asked for.
std::optional<Reservation> find_room_ahead(Attachment& attachment, Index& index, std::uint64_t nbytes, OwnerId owner);
// Gives back what this process reserved ahead and has not used. Bytes given back.
std::uint64_t give_stock_back(Attachment& attachment, Index& index);

// As `find_room`, but at the first place from the span's beginning on where a block of its size can begin; nullopt where that
// is not free.
std::optional<Reservation> find_room_from(Attachment& attachment, Index& index, Span span, OwnerId owner);

// Of the headroom (index/space.hpp), backed now if it was not. Nullopt: it has no such room, or the file system has none.
std::optional<Reservation> find_headroom(Attachment& attachment, Index& index, std::uint64_t nbytes, OwnerId owner);

// Error(storage_full) with the sizes as they are now.
Error no_room(Attachment& attachment, Index& index, std::uint64_t wanted_bytes);

// Backs and touches the next `nbytes` that nobody has touched yet. Bytes touched; fewer when the segment ends or the file
// system is full.
std::uint64_t populate_ahead(Attachment& attachment, Index& index, std::uint64_t nbytes);

// Gives the pages of free space back to the system. Bytes given back.
std::uint64_t trim_free(Attachment& attachment, Index& index);

}  // namespace tq
