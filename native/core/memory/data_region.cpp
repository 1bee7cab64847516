#include "core/memory/data_region.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/error.hpp"
#include "core/memory/huge_pages.hpp"
#include "core/pause.hpp"

namespace tq {

using layout::payload_data_offset;

namespace {

std::uint64_t down_to(std::uint64_t value, std::uint64_t unit) { return value / unit * unit; }
std::uint64_t up_to(std::uint64_t value, std::uint64_t unit) { return down_to(value + unit - 1, unit); }

}  // namespace

DataRegion::DataRegion(std::string name, int fd, std::uint64_t file_bytes, std::uint64_t base, std::uint64_t tail_bytes)
    : name_(std::move(name)),
      fd_(FileDescriptor::duplicate(fd)),
      tail_bytes_(tail_bytes),
      size_bytes_(file_bytes - payload_data_offset - tail_bytes),
      base_(base),
      kept_(std::make_unique<KeptMappings>(size_bytes_)),
      kept_shared_(std::make_unique<KeptMappings>(size_bytes_)),
      readable_(fd_.get(), 0, file_bytes, Access::read, name_) {}

std::uint64_t DataRegion::backed_bytes() const noexcept {
  return std::min(words_.backed->load(std::memory_order_acquire), size_bytes_);
}

std::uint64_t DataRegion::grow(std::uint64_t end) {
  const std::uint64_t begin = backed_bytes();
  end = std::min(up_to(end, page_bytes()), size_bytes_);
  if (end <= begin) return begin;
  TQ_PAUSE("payload.before_grow");
  if (!back_range(fd(), payload_data_offset + begin, end - begin, name_)) {
    // What the failed attempt did get goes back: the last bytes of the file system belong to leases and index.
    ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(payload_data_offset + begin),
                static_cast<off_t>(end - begin));
    Error error(ErrorCode::storage_full, "the file system of the " + name_ + " has no room for " +
                                             std::to_string(end - begin) + " bytes more than the " + std::to_string(begin) +
                                             " reserved");
    error.figures = {{"reserved", begin}, {"wanted", end - begin}, {"total", size_bytes_}};
    throw error;
  }
  std::uint64_t seen = words_.backed->load(std::memory_order_relaxed);
  while (seen < end && !words_.backed->compare_exchange_weak(seen, end, std::memory_order_release, std::memory_order_relaxed)) {
  }
  return end;
}

void DataRegion::check(Span span) const {
  const std::uint64_t end = size_bytes_ + tail_bytes_;
  if (span.offset < base_ || span.offset - base_ > end || span.nbytes > end - (span.offset - base_)) {
    throw Error(ErrorCode::invalid, "bytes [" + std::to_string(span.offset) + ", + " + std::to_string(span.nbytes) +
                                        ") are not in the " + name_ + " of " + std::to_string(size_bytes_) + " bytes");
  }
}

std::uint64_t DataRegion::file_offset(Span span) const noexcept { return payload_data_offset + (span.offset - base_); }

const std::byte* DataRegion::readable(Span span) const {
  check(span);
  return readable_.data() + file_offset(span);
}

DataRegion::FileRange DataRegion::pages_around(Span span) const {
  check(span);
  const std::uint64_t begin = file_offset(span);
  const std::uint64_t offset = down_to(begin, page_bytes());
  const std::uint64_t end = up_to(begin + std::max<std::uint64_t>(span.nbytes, 1), page_bytes());
  return {offset, end - offset, begin - offset};
}

DataRegion::FileRange DataRegion::huge_pages_around(Span span) const {
  const FileRange pages = pages_around(span);
  const std::uint64_t unit = huge_pages::nbytes();
  if (unit == 0 || span.nbytes < unit) return pages;
  const std::uint64_t offset = down_to(pages.offset, unit);
  const std::uint64_t end = std::min(up_to(pages.offset + pages.nbytes, unit), payload_data_offset + size_bytes_ + tail_bytes_);
  return {offset, end - offset, pages.lead_nbytes + (pages.offset - offset)};
}

std::uint64_t DataRegion::inner_pages(Span span, std::uint64_t* begin) const noexcept {
  *begin = up_to(file_offset(span), page_bytes());
  const std::uint64_t end = down_to(file_offset(span) + span.nbytes, page_bytes());
  return end > *begin ? end - *begin : 0;
}

DataRegion::Punched DataRegion::punch_pages(Span span) {
  std::uint64_t begin = 0;
  const std::uint64_t nbytes = inner_pages(span, &begin);
  if (nbytes == 0) return {0, true};
  const int own = fd();
  words_.punched->fetch_add(nbytes, std::memory_order_release);  // first: a hole is never unannounced
  if (::fallocate(own, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin), static_cast<off_t>(nbytes)) != 0) {
    if (errno == EOPNOTSUPP) return {0, false};
    throw Error::system("cannot give space of the " + name_ + " back", errno);
  }
  return {nbytes, true};
}

bool DataRegion::back(Span span) {
  if (span.nbytes == 0) return true;
  const FileRange range = pages_around(span);
  return back_range(fd(), range.offset, range.nbytes, name_);
}

bool DataRegion::ensure_backed(Span span) {
  return words_.punched->load(std::memory_order_acquire) == 0 || back(span);
}

}  // namespace tq
