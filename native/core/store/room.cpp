#include "core/store/room.hpp"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "core/memory/spill_file.hpp"
#include "core/memory/wake.hpp"
#include "core/store/give_back.hpp"

namespace tq {

namespace {

constexpr std::uint64_t page = 4096;
constexpr int max_missed = 64;  // trim gives way to puts that take every span before it can

// Backs `nbytes` beyond `seen` (what was backed when the caller looked) and tells the index. True also when somebody else
// backed more since: then there may be room already. False when the file system has no room.
bool back_more(Attachment& attachment, Index& index, std::uint64_t seen, std::uint64_t nbytes) {
  // A grower that fails gives back what it got, so two at once would take from each other.
  const GrowthLock held(*attachment.control);
  if (attachment.payload->backed_bytes() > seen) return true;
  std::uint64_t end = 0;
  try {
    end = attachment.payload->grow(seen + nbytes);
  } catch (const Error& error) {
    if (error.code != ErrorCode::storage_full) throw;
    return false;
  }
  index.grow(end);
  return true;
}

// One step more, or just what is wanted where the file system has no room for a step. False: no more to be had.
bool grow(Attachment& attachment, Index& index, std::uint64_t nbytes) {
  const std::uint64_t backed = attachment.payload->backed_bytes();
  // Another process, dead since, may have backed a step without telling the index: bytes that nobody would ever use.
  if (index.stats().reserved_bytes < backed) {
    index.grow(backed);
    return true;
  }
  if (backed >= attachment.payload->payload_bytes()) return false;
  // At most what is left: a damaged size of the step must not wrap the sum around, and this loop with it.
  const std::uint64_t step =
      std::min(std::max(attachment.control->step_bytes(), nbytes), attachment.payload->payload_bytes() - backed);
  return back_more(attachment, index, backed, step) || (nbytes < step && back_more(attachment, index, backed, nbytes));
}

// The slot and the bytes behind what was just reserved; gives it back where they are not there.
std::optional<Reservation> backed(Attachment& attachment, Index& index, std::optional<Reservation> found, OwnerId owner) {
  if (!found) return found;
  try {
    attachment.table.ensure(found->block);
    if (attachment.payload->ensure_backed(found->span)) return found;
  } catch (...) {
    index.abandon(*found, owner);
    throw;
  }
  index.abandon(*found, owner);
  return std::nullopt;
}

std::optional<Reservation> reserve(Attachment& attachment, Index& index, std::uint64_t nbytes, OwnerId owner) {
  const auto found = backed(attachment, index, index.reserve(nbytes, owner, attachment.recent_spans.offsets(nbytes)), owner);
  if (found) attachment.recent_spans.add(nbytes, found->span.offset);
  return found;
}

// For people and exact: "1.5 MiB (1572864 B)".
std::string size_text(std::uint64_t nbytes) {
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB"};
  const std::string exact = std::to_string(nbytes) + " B";
  if (nbytes < 1024) return exact;
  double size = static_cast<double>(nbytes) / 1024;
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(units); ++unit) size /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", size, units[unit]);
  return text + (" (" + exact + ")");
}

// Whether the slots and bytes behind what was just reserved are there; gives it all back when not.
bool make_usable(Attachment& attachment, Index& index, const std::vector<Reservation>& reservations, OwnerId owner) {
  bool usable = true;
  try {
    for (const Reservation& reservation : reservations) {
      attachment.table.ensure(reservation.block);
      usable = usable && attachment.payload->ensure_backed(reservation.span);
    }
  } catch (...) {
    index.abandon_all(reservations, owner);
    throw;
  }
  if (!usable) index.abandon_all(reservations, owner);
  return usable;
}

}  // namespace

std::optional<Reservation> find_room_ahead(Attachment& attachment, Index& index, std::uint64_t nbytes, OwnerId owner) {
  if (nbytes > Stock::largest_nbytes) return find_room(attachment, index, nbytes, owner);
  const std::uint64_t size_class = Stock::class_of(nbytes);
  if (const auto found = attachment.stock.take(size_class)) return found;
  const std::vector<Reservation> batch =
      index.reserve_ahead(size_class, owner, attachment.stock.next_batch(size_class));
  if (batch.empty() || !make_usable(attachment, index, batch, owner)) return find_room(attachment, index, nbytes, owner);
  for (std::size_t i = 1; i < batch.size(); ++i) attachment.stock.add(size_class, batch[i]);
  return batch.front();
}

std::uint64_t give_stock_back(Attachment& attachment, Index& index) {
  const std::vector<Reservation> reservations = attachment.stock.drain();
  if (reservations.empty()) return 0;
  std::uint64_t nbytes = 0;
  for (const Reservation& reservation : reservations) nbytes += reservation.span.nbytes;
  index.abandon_all(reservations, attachment.leases->owner());
  bump_word(room_word(*attachment.control));
  return nbytes;
}

std::optional<Reservation> find_room(Attachment& attachment, Index& index, std::uint64_t nbytes, OwnerId owner) {
  if (nbytes > attachment.payload->payload_bytes()) throw no_room(attachment, index, nbytes);
  std::optional<Reservation> found = reserve(attachment, index, nbytes, owner);
  if (!found && give_stock_back(attachment, index) > 0) found = reserve(attachment, index, nbytes, owner);
  // Freed extents before fresh ones: touching a page for the first time costs about twenty times copying into it.
  if (!found && reclaim_all(attachment, index) > 0) found = reserve(attachment, index, nbytes, owner);
  while (!found && grow(attachment, index, nbytes)) found = reserve(attachment, index, nbytes, owner);
  return found;
}

std::optional<Reservation> find_room_from(Attachment& attachment, Index& index, Span span, OwnerId owner) {
  return backed(attachment, index, index.reserve_from(span.offset, span.nbytes, owner), owner);
}

std::optional<Reservation> find_headroom(Attachment& attachment, Index& index, std::uint64_t nbytes, OwnerId owner) {
  std::optional<Reservation> found = index.reserve_headroom(nbytes, owner);
  if (!found) return found;
  try {
    attachment.table.ensure(found->block);
    if (attachment.payload->back(found->span)) return found;
  } catch (...) {
    index.abandon(*found, owner);
    throw;
  }
  index.abandon(*found, owner);
  return std::nullopt;
}

Error no_room(Attachment& attachment, Index& index, std::uint64_t wanted_bytes) {
  const IndexStats stats = index.stats();
  const std::uint64_t total = attachment.payload->payload_bytes();
  const std::uint64_t taken =
      stats.used_bytes + stats.pending_bytes + stats.ahead_bytes + stats.retired_bytes - stats.headroom_taken;
  const std::uint64_t free = total > taken ? total - taken : 0;
  const std::uint64_t backed = attachment.payload->backed_bytes();
  std::string advice = "It can never fit: make storage.size larger or put fewer rows at a time";
  if (wanted_bytes <= total) {
    // What is not backed counts as free; when it is asked for and not there, the file system is full.
    const std::string pieces = backed < total ? size_text(total - backed) + " of it not to be had, as the file system is full"
                                              : "in pieces of at most " + size_text(stats.largest_free);
    advice = "The free room is " + pieces +
             ". Clear rows that are done with, drop views of cleared rows, wait with timeout=, or make storage.size larger";
  }
  const std::uint64_t spill_taken = stats.spill_used_bytes + stats.spill_pending_bytes + stats.spill_retired_bytes;
  const std::uint64_t spill_free = stats.spill_total_bytes - std::min(stats.spill_total_bytes, spill_taken);
  std::string spilled;
  if (stats.spill_total_bytes > 0) {
    spilled = "; on disk: " + size_text(stats.spill_used_bytes) + " of " + size_text(stats.spill_total_bytes);
    if (attachment.payload->spill()->backed_bytes() < stats.spill_total_bytes) spilled += ", as far as its file system has room";
  }
  Error error(ErrorCode::storage_full,
              "no room for " + size_text(wanted_bytes) + ". Of " + size_text(total) + " in all, used: " +
                  size_text(stats.used_bytes) + " (rows name " + size_text(stats.live_bytes) +
                  " of it); freed, but still leased by views: " + size_text(stats.retired_bytes) +
                  "; pending: " + size_text(stats.pending_bytes) + "; free: " + size_text(free) + spilled + ". " + advice);
  error.figures = {{"used", stats.used_bytes},      {"live", stats.live_bytes},  {"leased", stats.retired_bytes},
                   {"pending", stats.pending_bytes}, {"free", free},              {"wanted", wanted_bytes},
                   {"total", total}};
  if (stats.spill_total_bytes > 0) {
    error.figures.emplace_back("spilled", stats.spill_used_bytes);
    error.figures.emplace_back("spill_free", spill_free);
    error.figures.emplace_back("spill_total", stats.spill_total_bytes);
  }
  return error;
}

std::uint64_t populate_ahead(Attachment& attachment, Index& index, std::uint64_t nbytes) {
  PayloadSegment& payload = *attachment.payload;
  const std::uint64_t start = std::min(payload.touched_bytes(), payload.payload_bytes());
  const std::uint64_t wanted = start + std::min(nbytes, payload.payload_bytes() - start);
  if (const std::uint64_t backed = payload.backed_bytes(); wanted > backed) back_more(attachment, index, backed, wanted - backed);
  const std::uint64_t end = std::min(wanted, payload.backed_bytes());
  if (end <= start) return 0;
  return payload.populate({start, end - start});
}

namespace {

// Punches what `take` reserves, until it has no more. Each free span is reserved while it is punched, so that nobody puts into
// it meanwhile; all are held until the last is done, so that none is found twice. A process that reserves one of them later
// backs it again (ensure_backed).
template <class Take, class Punch>
std::uint64_t punch_free(Attachment& attachment, Index& index, Take&& take, Punch&& punch) {
  std::vector<Reservation> held;
  std::uint64_t given_back = 0;
  const auto release = [&] {
    for (const Reservation& reservation : held) index.abandon(reservation, attachment.leases->owner());
    if (!held.empty()) bump_word(room_word(*attachment.control));
  };
  try {
    for (int missed = 0; missed < max_missed;) {
      bool none = false;
      const std::optional<Reservation> reservation = take(none);
      if (none) break;
      if (!reservation) {
        ++missed;  // somebody was faster
        continue;
      }
      missed = 0;
      held.push_back(*reservation);
      given_back += punch(reservation->span);
    }
  } catch (...) {
    release();
    throw;
  }
  release();
  return given_back;
}

// The largest free span by `reserve`. Large spans start at a page: a free one that does not has room for a page less.
template <class Reserve>
std::optional<Reservation> take_largest(std::uint64_t largest_free, bool& none, Reserve&& reserve) {
  const std::uint64_t largest = largest_free / page * page;
  none = largest == 0;
  if (none) return std::nullopt;
  std::optional<Reservation> reservation = reserve(largest);
  if (!reservation && largest > page) reservation = reserve(largest - page);
  return reservation;
}

}  // namespace

std::uint64_t trim_free(Attachment& attachment, Index& index) {
  const OwnerId owner = attachment.leases->owner();
  std::uint64_t given_back = punch_free(
      attachment, index,
      [&](bool& none) {
        return take_largest(index.stats().largest_free, none, [&](std::uint64_t nbytes) { return index.reserve(nbytes, owner); });
      },
      [&](Span span) { return attachment.payload->punch(span); });
  if (SpillFile* spill = attachment.payload->spill()) {
    given_back += punch_free(
        attachment, index,
        [&](bool& none) {
          return take_largest(index.stats().spill_largest_free, none,
                              [&](std::uint64_t nbytes) { return index.reserve_spill({nbytes}, owner).front(); });
        },
        [&](Span span) { return spill->punch(span); });
  }
  return given_back;
}

}  // namespace tq
