#include "core/memory/payload_segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "core/error.hpp"
#include "core/memory/huge_pages.hpp"
#include "core/pause.hpp"

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

}  // namespace

void PayloadSegment::format(int fd, const std::string& session, std::uint64_t payload_bytes) {
  const std::string name = segment_name(SegmentKind::payload, session);
  const std::uint64_t file_bytes = payload_data_offset + round_up(payload_bytes, page_bytes());
  resize_file(fd, file_bytes, name);
  if (!back_range(fd, 0, payload_data_offset, name)) {
    throw Error(ErrorCode::storage_full, "no room for the header of the " + name);
  }
  const SharedMapping mapping(fd, 0, payload_data_offset, Access::read_write, name);
  auto* payload = new (mapping.data()) PayloadLayout();
  write_header(payload->header, SegmentKind::payload, session, file_bytes);
}

PayloadSegment::PayloadSegment(int fd, const std::string& session)
    : name_(segment_name(SegmentKind::payload, session)), fd_(FileDescriptor::duplicate(fd)) {
  const std::uint64_t file_bytes = check_header(fd_.get(), SegmentKind::payload, session, payload_data_offset);
  payload_bytes_ = file_bytes - payload_data_offset;
  kept_ = std::make_unique<KeptMappings>(payload_bytes_);
  kept_shared_ = std::make_unique<KeptMappings>(payload_bytes_);
  writable_ = SharedMapping(fd_.get(), 0, file_bytes, Access::read_write, name_);
  readable_ = SharedMapping(fd_.get(), 0, file_bytes, Access::read, name_);
}

std::uint64_t PayloadSegment::backed_bytes() const noexcept {
  return std::min(at().backed_bytes.value.load(std::memory_order_acquire), payload_bytes_);
}

std::uint64_t PayloadSegment::grow(std::uint64_t end) {
  const std::uint64_t begin = backed_bytes();
  end = std::min(round_up(end, page_bytes()), payload_bytes_);
  if (end <= begin) return begin;
  TQ_PAUSE("payload.before_grow");
  if (!back_range(fd_.get(), payload_data_offset + begin, end - begin, name_)) {
    // What the failed attempt did get goes back: the last bytes of the file system belong to leases and index.
    ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(payload_data_offset + begin),
                static_cast<off_t>(end - begin));
    Error error(ErrorCode::storage_full, "the file system of the " + name_ + " has no room for " +
                                             std::to_string(end - begin) + " bytes more than the " + std::to_string(begin) +
                                             " reserved");
    error.figures = {{"reserved", begin}, {"wanted", end - begin}, {"total", payload_bytes_}};
    throw error;
  }
  raise_to(at().backed_bytes.value, end, std::memory_order_release);
  return end;
}

std::uint64_t PayloadSegment::resident_bytes() const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) throw Error::system("cannot look at the " + name_, errno);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

void PayloadSegment::check(Span span) const {
  if (span.offset > payload_bytes_ || span.nbytes > payload_bytes_ - span.offset) {
    throw Error(ErrorCode::invalid, "bytes [" + std::to_string(span.offset) + ", + " + std::to_string(span.nbytes) +
                                        ") are not in the " + name_ + " of " + std::to_string(payload_bytes_) + " bytes");
  }
}

std::byte* PayloadSegment::writable(Span span) const {
  check(span);
  return writable_.data() + payload_data_offset + span.offset;
}

const std::byte* PayloadSegment::readable(Span span) const {
  check(span);
  return readable_.data() + payload_data_offset + span.offset;
}

PayloadSegment::FileRange PayloadSegment::pages_around(Span span) const {
  check(span);
  const std::uint64_t begin = payload_data_offset + span.offset;
  const std::uint64_t offset = round_down(begin, page_bytes());
  const std::uint64_t end = round_up(begin + std::max<std::uint64_t>(span.nbytes, 1), page_bytes());
  return {offset, end - offset, begin - offset};
}

PayloadSegment::FileRange PayloadSegment::huge_pages_around(Span span) const {
  const FileRange pages = pages_around(span);
  const std::uint64_t unit = huge_pages::nbytes();
  if (unit == 0 || span.nbytes < unit) return pages;
  const std::uint64_t offset = round_down(pages.offset, unit);
  const std::uint64_t end = std::min(round_up(pages.offset + pages.nbytes, unit), payload_data_offset + payload_bytes_);
  return {offset, end - offset, pages.lead_nbytes + (pages.offset - offset)};
}

std::uint64_t PayloadSegment::make_huge(std::uint64_t nbytes) {
  constexpr int attempts = 3;         // at a page that the kernel uses right now
  constexpr int hopeless_after = 64;  // pages in a row: this kernel or file system has none
  const std::uint64_t unit = huge_pages::nbytes();
  if (unit == 0 || failures_.load(std::memory_order_relaxed) >= hopeless_after) return 0;
  const std::uint64_t end = round_down(payload_data_offset + std::min(touched_bytes(), payload_bytes_), unit);
  std::uint64_t done = 0;
  for (std::uint64_t begin = at().collapsed_bytes.value.load(std::memory_order_relaxed); begin < end && done < nbytes;
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
        Error error(ErrorCode::storage_full, "cannot populate " + std::to_string(part) + " bytes of the " + name_);
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
  const std::uint64_t begin = round_up(payload_data_offset + span.offset, page_bytes());
  const std::uint64_t end = round_down(payload_data_offset + span.offset + span.nbytes, page_bytes());
  if (end <= begin) return 0;
  lower_to(at().touched_bytes.value, span.offset);
  if (const std::uint64_t unit = huge_pages::nbytes(); unit != 0) {
    lower_to(at().collapsed_bytes.value, round_down(begin, unit));
    lower_to(at().huge_bytes.value, round_down(begin, unit));
  }
  at().punched_bytes.value.fetch_add(end - begin, std::memory_order_release);  // first: a hole is never unannounced
  if (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
                  static_cast<off_t>(end - begin)) != 0) {
    throw Error::system("cannot give memory of the " + name_ + " back", errno);
  }
  return end - begin;
}

bool PayloadSegment::back(Span span) {
  if (span.nbytes == 0) return true;
  const FileRange range = pages_around(span);
  return back_range(fd_.get(), range.offset, range.nbytes, name_);
}

bool PayloadSegment::ensure_backed(Span span) {
  return at().punched_bytes.value.load(std::memory_order_acquire) == 0 || back(span);
}

std::uint64_t PayloadSegment::touched_bytes() const noexcept {
  return at().touched_bytes.value.load(std::memory_order_relaxed);
}

void PayloadSegment::note_touched(Span span) noexcept {
  // Small holes do not stop the mark: space reserved ahead for small puts lies before the next block and may stay unused.
  constexpr std::uint64_t small_hole = 2u << 20;
  if (span.offset <= touched_bytes() + small_hole) raise_to(at().touched_bytes.value, span.offset + span.nbytes, std::memory_order_relaxed);
}

}  // namespace tq
