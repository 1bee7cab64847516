// The payload segment. It has its full virtual size from the start and is backed in steps; whoever touches a span has had
// it backed before (`grow` under the caller's lock, then the index hands the span out), so that SIGBUS cannot happen.
//
// Hold it by shared_ptr: views keep the segment mapped after the store was closed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/memory/kept_mappings.hpp"
#include "core/memory/segment.hpp"
#include "core/types.hpp"

namespace tq {

class PayloadSegment {
 public:
  static void format(int fd, const std::string& session, std::uint64_t payload_bytes);
  PayloadSegment(int fd, const std::string& session);  // duplicates the descriptor

  std::uint64_t payload_bytes() const noexcept { return payload_bytes_; }
  // [0, backed) is backed. Acquire: follows the fallocate of whoever stored it.
  std::uint64_t backed_bytes() const noexcept;
  // Backs up to `end` (at most payload_bytes) and returns the new backed end. Error(storage_full) when the file system has
  // no room: what was backed before stays. Under the caller's lock: two growers would only do the work twice.
  std::uint64_t grow(std::uint64_t end);
  // Memory that the file really occupies now, header area included (st_blocks).
  std::uint64_t resident_bytes() const;

  // Addresses of span offsets in the two mappings of this process. No check but an upper bound (Error(invalid)).
  std::byte* writable(Span span) const;         // shared with every process: puts
  const std::byte* readable(Span span) const;   // PROT_READ: a write kills the offender, never the data

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
  bool back(Span span);  // false: no room
  // For a span just reserved, before its first byte is touched: backs it if anything was ever punched, else costs one load.
  // The punch of these bytes precedes (its owner's abandon, our reserve: two commits) this load. False: no room.
  bool ensure_backed(Span span);

  // Warm high-water mark: [0, touched) has been written or populated at least once since it was last punched. A hint for
  // statistics, for populate and for huge pages, so relaxed; a put that begins below it or a little above raises it.
  std::uint64_t touched_bytes() const noexcept;
  void note_touched(Span span) noexcept;

  int fd() const noexcept { return fd_.get(); }
  KeptMappings& kept() const noexcept { return *kept_; }                  // of views
  KeptMappings& kept_shared() const noexcept { return *kept_shared_; }  // of producers
  // Whole pages around a span, as a range of file offsets (page aligned), for mappings of its own.
  struct FileRange {
    std::uint64_t offset;       // in the file
    std::uint64_t nbytes;
    std::uint64_t lead_nbytes;  // the span begins so far behind `offset`
  };
  FileRange pages_around(Span span) const;
  // The same out to whole huge pages where the span is large enough to have some, so that its ends are mapped as they are too.
  FileRange huge_pages_around(Span span) const;
  const std::string& name() const noexcept { return name_; }

 private:
  layout::PayloadLayout& at() const noexcept { return *reinterpret_cast<layout::PayloadLayout*>(writable_.data()); }
  void check(Span span) const;

  std::string name_;
  FileDescriptor fd_;
  std::uint64_t payload_bytes_ = 0;
  std::atomic<int> failures_{0};  // of collapses in a row. Relaxed: a count
  std::unique_ptr<KeptMappings> kept_;
  std::unique_ptr<KeptMappings> kept_shared_;
  SharedMapping writable_;
  SharedMapping readable_;
};

}  // namespace tq
