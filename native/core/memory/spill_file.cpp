#include "core/memory/spill_file.hpp"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "core/error.hpp"
#include "core/file_size_signal.hpp"

namespace tq {

using layout::payload_data_offset;
using layout::SegmentHeader;
using layout::SegmentKind;
using layout::SpillLayout;

namespace {

std::string name_of(const std::string& session) { return segment_name(SegmentKind::spill, session); }

void write_fully(int fd, const void* bytes, std::size_t nbytes, off_t offset, const std::string& name) {
  const FileSizeSignal no_signal;
  if (::pwrite(fd, bytes, nbytes, offset) != static_cast<ssize_t>(nbytes)) throw Error::system("cannot write the header of the " + name, errno);
}

std::uint64_t random_id() {
  std::uint64_t id = 0;
  while (id == 0) {
    if (::getrandom(&id, sizeof id, 0) != static_cast<ssize_t>(sizeof id)) throw Error::system("cannot draw an id for a spill file", errno);
  }
  return id;
}

}  // namespace

void SpillFile::format(int fd, int payload_fd, const std::string& session, std::uint64_t spill_bytes) {
  const std::string name = name_of(session);
  const std::uint64_t file_bytes = payload_data_offset + (spill_bytes + page_bytes() - 1) / page_bytes() * page_bytes();
  resize_file(fd, file_bytes, name);
  if (!back_range(fd, 0, payload_data_offset, name)) {
    throw Error(ErrorCode::storage_full, "no room for the header of the " + name);
  }
  // Written, never mapped: see the top of spill_file.hpp.
  alignas(SpillLayout) unsigned char bytes[sizeof(SpillLayout)] = {};
  auto* spill = new (bytes) SpillLayout();
  spill->id = random_id();
  write_header(spill->header, SegmentKind::spill, session, file_bytes);
  const std::uint64_t id = spill->id;
  write_fully(fd, bytes, sizeof bytes, 0, name);
  write_fully(payload_fd, &id, sizeof id, static_cast<off_t>(offsetof(layout::PayloadLayout, spill_id)), name);
}

SpillFile::SpillFile(int fd, const std::string& session, const PayloadSegment& payload)
    : DataRegion(name_of(session), fd, check_header(fd, SegmentKind::spill, session, payload_data_offset + page_bytes()), spill_base) {
  std::uint64_t id = 0;
  if (::pread(fd, &id, sizeof id, static_cast<off_t>(offsetof(SpillLayout, id))) != static_cast<ssize_t>(sizeof id)) {
    throw Error::system("cannot read the header of the " + name(), errno);
  }
  if (id != payload.spill_id()) {
    throw Error(ErrorCode::corrupt, "the " + name() + " is not the one that was made with it: the file was replaced by that of "
                                                      "an earlier session of this name");
  }
  set_words({&payload.spill_backed_word(), &payload.spill_punched_word()});
}

bool SpillFile::is_one(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return false;
  alignas(SegmentHeader) unsigned char bytes[sizeof(SegmentHeader)] = {};
  const ssize_t got = ::pread(fd, bytes, sizeof bytes, 0);
  if (got < 0) return false;
  std::uint64_t magic = 0;
  std::uint32_t kind = 0;
  std::memcpy(&magic, bytes + offsetof(SegmentHeader, magic), sizeof magic);
  std::memcpy(&kind, bytes + offsetof(SegmentHeader, kind), sizeof kind);
  if (magic == layout::magic) return kind == static_cast<std::uint32_t>(SegmentKind::spill);
  // A creator that died wrote the header's bytes at once or not at all.
  return std::all_of(bytes, bytes + sizeof bytes, [](unsigned char byte) { return byte == 0; });
}

void SpillFile::check_length() const {
  struct stat status {};
  if (::fstat(fd(), &status) != 0) throw Error::system("cannot look at the " + name(), errno);
  if (static_cast<std::uint64_t>(status.st_size) == payload_data_offset + size_bytes()) return;
  throw Error(ErrorCode::corrupt, "the " + name() + " has " + std::to_string(status.st_size) + " bytes and was made with " +
                                      std::to_string(payload_data_offset + size_bytes()) +
                                      ": it was cut from outside, rows that lie there are lost");
}

bool SpillFile::write(Span span, const std::byte* source) {
  check(span);
  const FileSizeSignal no_signal;
  for (std::uint64_t done = 0; done < span.nbytes;) {
    const ssize_t n = ::pwrite(fd(), source + done, span.nbytes - done, static_cast<off_t>(file_offset(span) + done));
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == ENOSPC || errno == EDQUOT) return false;
      throw Error::system("cannot write to the " + name(), errno);
    }
    done += static_cast<std::uint64_t>(n);
  }
  return true;
}

}  // namespace tq
