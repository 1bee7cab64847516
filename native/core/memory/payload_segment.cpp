#include "core/memory/payload_segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <new>
#include <string>

#include "core/error.hpp"
#include "core/memory/huge_pages.hpp"
#include "core/memory/spill_file.hpp"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older headers lack the name
#endif

namespace tq {

using layout::payload_data_offset;
using layout::PayloadLayout;
using layout::SegmentKind;

namespace {

std::uint64_t round_down(std::uint64_t value, std::uint64_t unit) { return value / unit * unit; }
std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return round_down(value + unit - 1, unit); }

void raise_to(std::atomic<std::uint64_t>& mark, std::uint64_t value, std::memory_order order) noexcept {
  std::uint64_t seen = mark.load(std::memory_order_relaxed);
  while (seen < value && !mark.compare_exchange_weak(seen, value, order, std::memory_order_relaxed)) {
  }
}

void lower_to(std::atomic<std::uint64_t>& mark, std::uint64_t value) noexcept {
  std::uint64_t seen = mark.load(std::memory_order_relaxed);
  while (seen > value && !mark.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

std::uint64_t headroom_of(int fd, const std::string& session) {
  const std::uint64_t file_bytes = check_header(fd, SegmentKind::payload, session, payload_data_offset);
  std::uint64_t nbytes = 0;
  if (::pread(fd, &nbytes, sizeof nbytes, offsetof(PayloadLayout, headroom_bytes)) != sizeof nbytes) {
    throw Error::system("cannot read the payload segment", errno);
  }
  if (nbytes % page_bytes() != 0 || nbytes > file_bytes - payload_data_offset) {
    throw Error(ErrorCode::corrupt, "the payload segment has a headroom of " + std::to_string(nbytes) + " bytes");
  }
  return nbytes;
}

}  // namespace

void PayloadSegment::format(int fd, const std::string& session, std::uint64_t payload_bytes, std::uint64_t headroom_bytes) {
  const std::string name = segment_name(SegmentKind::payload, session);
  const std::uint64_t file_bytes = payload_data_offset + round_up(payload_bytes, page_bytes()) + round_up(headroom_bytes, page_bytes());
  resize_file(fd, file_bytes, name);
  if (!back_range(fd, 0, payload_data_offset, name)) {
    throw Error(ErrorCode::storage_full, "no room for the header of the " + name);
  }
  const SharedMapping mapping(fd, 0, payload_data_offset, Access::read_write, name);
  auto* payload = new (mapping.data()) PayloadLayout();
  payload->headroom_bytes.value.store(round_up(headroom_bytes, page_bytes()), std::memory_order_relaxed);
  write_header(payload->header, SegmentKind::payload, session, file_bytes);
}

PayloadSegment::PayloadSegment(int fd, const std::string& session)
    : DataRegion(segment_name(SegmentKind::payload, session), fd,
                 check_header(fd, SegmentKind::payload, session, payload_data_offset), 0, headroom_of(fd, session)),
      writable_(this->fd(), 0, payload_data_offset + size_bytes() + headroom_of(fd, session), Access::read_write, name()) {
  set_words({&at().backed_bytes.value, &at().punched_bytes.value});
}

const DataRegion& PayloadSegment::spilled_region() const {
  if (spill_ == nullptr) throw Error(ErrorCode::corrupt, "a block lies in a spill file, and this session has none");
  return *spill_;
}

std::uint64_t PayloadSegment::resident_bytes() const {
  struct stat status {};
  if (::fstat(fd(), &status) != 0) throw Error::system("cannot look at the " + name(), errno);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

std::byte* PayloadSegment::writable(Span span) const {
  check(span);
  return writable_.data() + file_offset(span);
}

std::uint64_t PayloadSegment::make_huge(std::uint64_t nbytes) {
  constexpr int attempts = 3;         // at a page that the kernel uses right now
  constexpr int hopeless_after = 64;  // pages in a row: this kernel or file system has none
  const std::uint64_t unit = huge_pages::nbytes();
  if (unit == 0 || failures_.load(std::memory_order_relaxed) >= hopeless_after) return 0;
  const std::uint64_t end = round_down(payload_data_offset + std::min(touched_bytes(), payload_bytes()), unit);
  std::uint64_t done = 0;
  for (std::uint64_t begin = round_down(at().collapsed_bytes.value.load(std::memory_order_relaxed), unit); begin < end && done < nbytes;
       begin += unit, done += unit) {
    const huge_pages::Collapse outcome = huge_pages::collapse(writable_.data() + begin);
    if (outcome == huge_pages::Collapse::made) {
      failures_.store(0, std::memory_order_relaxed);
      at().huge_bytes.value.fetch_add(unit, std::memory_order_relaxed);
    } else {
      const int failures = failures_.fetch_add(1, std::memory_order_relaxed) + 1;
      if (outcome == huge_pages::Collapse::later && failures % attempts != 0) return done;  // the next call tries again
    }
    raise_to(at().collapsed_bytes.value, begin + unit, std::memory_order_relaxed);
  }
  return done;
}

std::uint64_t PayloadSegment::huge_bytes() const noexcept { return at().huge_bytes.value.load(std::memory_order_relaxed); }

std::uint64_t PayloadSegment::populate(Span span) {
  if (span.nbytes == 0) return 0;
  const FileRange range = pages_around(span);
  constexpr std::uint64_t part_bytes = 64u << 20;  // so that a signal or a full file system is seen between parts
  for (std::uint64_t done = 0; done < range.nbytes;) {
    const std::uint64_t part = std::min(part_bytes, range.nbytes - done);
    std::byte* begin = writable_.data() + range.offset + done;
    if (::madvise(begin, part, MADV_POPULATE_WRITE) != 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      if (errno != EINVAL) {
        Error error(ErrorCode::storage_full, "cannot populate " + std::to_string(part) + " bytes of the " + name());
        error.errno_value = errno;
        throw error;
      }
      for (std::uint64_t at_byte = 0; at_byte < part; at_byte += page_bytes()) {
        (void)*reinterpret_cast<volatile const std::byte*>(begin + at_byte);
      }
    }
    done += part;
  }
  note_touched(span);
  return range.nbytes;
}

std::uint64_t PayloadSegment::punch(Span span) {
  check(span);
  std::uint64_t begin = 0;
  if (inner_pages(span, &begin) == 0) return 0;
  lower_to(at().touched_bytes.value, span.offset);
  if (const std::uint64_t unit = huge_pages::nbytes(); unit != 0) {
    lower_to(at().collapsed_bytes.value, round_down(begin, unit));
    lower_to(at().huge_bytes.value, round_down(begin, unit));
  }
  const Punched punched = punch_pages(span);
  if (!punched.supported) throw Error::system("cannot give memory of the " + name() + " back", EOPNOTSUPP);
  return punched.nbytes;
}

std::uint64_t PayloadSegment::touched_bytes() const noexcept {
  return at().touched_bytes.value.load(std::memory_order_relaxed);
}

void PayloadSegment::note_touched(Span span) noexcept {
  // Small holes do not stop the mark: space reserved ahead for small puts lies before the next block and may stay unused.
  constexpr std::uint64_t small_hole = 2u << 20;
  if (span.offset >= payload_bytes()) return;  // headroom
  if (span.offset <= touched_bytes() + small_hole) raise_to(at().touched_bytes.value, span.offset + span.nbytes, std::memory_order_relaxed);
}

}  // namespace tq
