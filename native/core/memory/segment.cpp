#include "core/memory/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/file_size_signal.hpp"
#include "core/memory/huge_pages.hpp"

namespace tq {

using layout::SegmentHeader;
using layout::SegmentKind;

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    file_ = other.file_;
  }
  return *this;
}

FileDescriptor FileDescriptor::duplicate(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) throw Error::system("cannot duplicate the descriptor of a segment", errno);
  return FileDescriptor(copy);
}

void FileDescriptor::reset() noexcept {
  if (is_ours()) ::close(fd_);
  fd_ = -1;
}

SharedMapping::SharedMapping(int fd, std::uint64_t offset, std::uint64_t nbytes, Access access, const std::string& name) {
  const int protection = access == Access::read ? PROT_READ : PROT_READ | PROT_WRITE;
  void* data = huge_pages::map_file(nbytes, protection, MAP_SHARED | MAP_NORESERVE, fd, offset);
  if (data == MAP_FAILED) throw Error::system("cannot map " + std::to_string(nbytes) + " bytes of the " + name, errno);
  data_ = static_cast<std::byte*>(data);
  nbytes_ = nbytes;
}

SharedMapping::SharedMapping(SharedMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), nbytes_(std::exchange(other.nbytes_, 0)) {}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    nbytes_ = std::exchange(other.nbytes_, 0);
  }
  return *this;
}

void SharedMapping::reset() noexcept {
  if (data_ != nullptr) ::munmap(data_, nbytes_);
  data_ = nullptr;
  nbytes_ = 0;
}

std::uint64_t page_bytes() noexcept {
  static const auto bytes = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

std::string segment_name(SegmentKind kind, const std::string& session) {
  const char* what = "segment";
  switch (kind) {
    case SegmentKind::control: what = "control segment"; break;
    case SegmentKind::table: what = "block table segment"; break;
    case SegmentKind::payload: what = "payload segment"; break;
    case SegmentKind::leases: what = "lease file"; break;
    case SegmentKind::spill: what = "spill file"; break;
  }
  return std::string(what) + " of session '" + session + "'";
}

std::uint64_t pid_namespace() noexcept {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

void resize_file(int fd, std::uint64_t nbytes, const std::string& name) {
  const FileSizeSignal no_signal;
  if (::ftruncate(fd, static_cast<off_t>(nbytes)) != 0) {
    throw Error::system("cannot give the " + name + " its size of " + std::to_string(nbytes) + " bytes", errno);
  }
}

bool back_range(int fd, std::uint64_t offset, std::uint64_t nbytes, const std::string& name) {
  // In parts: tmpfs gives a whole call up when a signal arrives, and a profiler's timer would let none of them end.
  constexpr std::uint64_t part_bytes = 8u << 20;
  const FileSizeSignal no_signal;
  for (std::uint64_t done = 0; done < nbytes;) {
    const std::uint64_t part = std::min(part_bytes, nbytes - done);
    const int error = ::posix_fallocate(fd, static_cast<off_t>(offset + done), static_cast<off_t>(part));
    if (error == EINTR) continue;
    if (error == ENOSPC || error == EDQUOT || error == ENOMEM) return false;
    if (error != 0) throw Error::system("cannot reserve memory for the " + name, error);
    done += part;
  }
  return true;
}

namespace {

std::string hexadecimal(std::uint64_t value) {
  char text[19];
  std::snprintf(text, sizeof text, "0x%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

void write_header(SegmentHeader& header, SegmentKind kind, const std::string& session, std::uint64_t nbytes) {
  header.version = layout::layout_version;
  header.kind = kind;
  header.fingerprint = layout::fingerprint();
  header.session_hash = layout::fnv1a(session);
  header.size_bytes = nbytes;
  header.magic.store(layout::magic, std::memory_order_release);
}

std::uint64_t check_header(int fd, SegmentKind kind, const std::string& session, std::uint64_t min_bytes) {
  const std::string name = segment_name(kind, session);
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw Error::system("cannot look at the " + name, errno);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size < std::max<std::uint64_t>(min_bytes, sizeof(SegmentHeader))) {
    throw Error(ErrorCode::corrupt, "the " + name + " has " + std::to_string(size) + " bytes; it needs at least " +
                                        std::to_string(min_bytes) + ". It was cut, or its creator died while making it");
  }
  // Read and not mapped: a file that is cut between fstat and here gives a short read instead of SIGBUS.
  alignas(SegmentHeader) unsigned char bytes[sizeof(SegmentHeader)] = {};
  if (::pread(fd, bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    throw Error::system("cannot read the header of the " + name, errno);
  }
  const auto field = [&bytes]<typename T>(std::size_t offset, T) {
    T value;
    std::memcpy(&value, bytes + offset, sizeof value);
    return value;
  };
  const auto magic = field(offsetof(SegmentHeader, magic), std::uint64_t{});
  const auto version = field(offsetof(SegmentHeader, version), std::uint32_t{});
  const auto found_kind = field(offsetof(SegmentHeader, kind), std::uint32_t{});
  const auto fingerprint = field(offsetof(SegmentHeader, fingerprint), std::uint64_t{});
  const auto session_hash = field(offsetof(SegmentHeader, session_hash), std::uint64_t{});
  const auto size_bytes = field(offsetof(SegmentHeader, size_bytes), std::uint64_t{});

  if (magic != layout::magic) {
    throw Error(ErrorCode::corrupt, "the " + name + (magic == 0 ? " was never finished by its creator"
                                                                : " does not begin with this project's mark"));
  }
  if (version != layout::layout_version) {
    throw Error(ErrorCode::layout_mismatch, "the " + name + " has layout version " + std::to_string(version) +
                                                ", this build has " + std::to_string(layout::layout_version) +
                                                ": run the same release in every process of a session");
  }
  if (fingerprint != layout::fingerprint()) {
    throw Error(ErrorCode::layout_mismatch, "the " + name + " was made by another build (other struct sizes or C library: layout " +
                                                hexadecimal(fingerprint) + ", this build has " +
                                                hexadecimal(layout::fingerprint()) + "): run the same build in every process of a session");
  }
  if (found_kind != static_cast<std::uint32_t>(kind)) {
    throw Error(ErrorCode::layout_mismatch, "what was opened as the " + name + " is a segment of kind " +
                                                std::to_string(found_kind) + " and not " +
                                                std::to_string(static_cast<std::uint32_t>(kind)));
  }
  if (session_hash != layout::fnv1a(session)) {
    throw Error(ErrorCode::corrupt, "what was opened as the " + name + " belongs to another session");
  }
  if (size_bytes != size) {
    throw Error(ErrorCode::corrupt, "the " + name + " has " + std::to_string(size) + " bytes and says that it has " +
                                        std::to_string(size_bytes));
  }
  return size;
}

}  // namespace tq
