// The payload segment: the region in memory, where blocks are made. See data_region.hpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/memory/data_region.hpp"

namespace tq {

class SpillFile;

class PayloadSegment final : public DataRegion {
 public:
  // `headroom_bytes` more lie behind the payload, from its next page on: see index/space.hpp.
  static void format(int fd, const std::string& session, std::uint64_t payload_bytes, std::uint64_t headroom_bytes = 0);
  PayloadSegment(int fd, const std::string& session);  // duplicates the descriptor

  std::uint64_t payload_bytes() const noexcept { return size_bytes(); }
  // Memory that the file really occupies now, header area included (st_blocks).
  std::uint64_t resident_bytes() const;

  // On the mapping that is shared with every process: for puts. No check but an upper bound (Error(invalid)).
  std::byte* writable(Span span) const;

  // The spill file beside it, which lives as long; null: the session has none.
  void set_spill(SpillFile* spill) noexcept { spill_ = spill; }
  SpillFile* spill() const noexcept { return spill_; }
  // Where a span lies. Error(corrupt): in a spill file that is not there.
  const DataRegion& region(Span span) const { return span.spilled() ? spilled_region() : *this; }
  // Its id and its words; constant, and relaxed to acquire as for the segment's own.
  std::uint64_t spill_id() const noexcept { return at().spill_id.value.load(std::memory_order_relaxed); }
  std::atomic<std::uint64_t>& spill_backed_word() const noexcept { return at().spill_backed_bytes.value; }
  std::atomic<std::uint64_t>& spill_punched_word() const noexcept { return at().spill_punched_bytes.value; }

  // Touches the pages of a free span ahead of use (MADV_POPULATE_WRITE; where the kernel lacks it, one read per page, which
  // also makes tmpfs clear the page). Contents do not change. Returns the bytes touched. Error(storage_full) without room.
  std::uint64_t populate(Span span);
  // Turns the next `nbytes` of what is touched into huge pages (huge_pages.hpp). Returns the bytes it went through, those that
  // the kernel would not make huge included; 0: nothing is left to do, or not now. For the service, one caller at a time.
  std::uint64_t make_huge(std::uint64_t nbytes);
  std::uint64_t huge_bytes() const noexcept;
  // Gives the whole pages inside a span that the caller owns (reserved, so that nobody else may use it) back to the system;
  // their bytes become zero. `back` undoes it before the span is free again or used. Bytes punched.
  std::uint64_t punch(Span span);

  // Warm high-water mark: [0, touched) has been written or populated at least once since it was last punched. A hint for
  // statistics, for populate and for huge pages, so relaxed; a put that begins below it or a little above raises it.
  std::uint64_t touched_bytes() const noexcept;
  void note_touched(Span span) noexcept;

 private:
  layout::PayloadLayout& at() const noexcept { return *reinterpret_cast<layout::PayloadLayout*>(writable_.data()); }
  const DataRegion& spilled_region() const;

  std::atomic<int> failures_{0};  // of collapses in a row. Relaxed: a count
  SharedMapping writable_;
  SpillFile* spill_ = nullptr;
};

// A share of `payload`, as the region in which the span lies.
inline std::shared_ptr<const DataRegion> region_of(const std::shared_ptr<const PayloadSegment>& payload, Span span) {
  return {payload, &payload->region(span)};
}

}  // namespace tq
