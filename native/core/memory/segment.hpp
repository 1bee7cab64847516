// Files of shared memory: a descriptor, a mapping, and the header that every one of them begins with.
// The names of segments belong to Python (posix_ipc); here a segment is a descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/file_identity.hpp"
#include "core/memory/layout.hpp"

namespace tq {

// Owns a descriptor. Always close-on-exec: an exec'd image must not keep locks or segments alive.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) noexcept : fd_(fd), file_(FileIdentity::of(fd)) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.fd_), file_(other.file_) { other.fd_ = -1; }
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { reset(); }
  static FileDescriptor duplicate(int fd);  // Error(system)
  int get() const noexcept { return fd_; }
  bool is_ours() const noexcept { return file_.is_of(fd_); }  // not where somebody else closed it
  // Error(closed) naming `what` where it is not. Before whatever writes, maps or lists.
  int ours(const std::string& what) const {
    if (!is_ours()) [[unlikely]] throw_descriptor_lost(what);
    return fd_;
  }
  void reset() noexcept;  // closes what is still ours

 private:
  int fd_ = -1;
  FileIdentity file_;
};

enum class Access { read, read_write };

// Owns a MAP_SHARED mapping of [offset, offset + nbytes) of a file; the offset is page aligned.
class SharedMapping {
 public:
  SharedMapping() = default;
  SharedMapping(int fd, std::uint64_t offset, std::uint64_t nbytes, Access access, const std::string& name);  // Error(system)
  SharedMapping(SharedMapping&& other) noexcept;
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  ~SharedMapping() { reset(); }
  std::byte* data() const noexcept { return data_; }
  std::uint64_t nbytes() const noexcept { return nbytes_; }
  void reset() noexcept;

 private:
  std::byte* data_ = nullptr;
  std::uint64_t nbytes_ = 0;
};

std::uint64_t page_bytes() noexcept;
// "payload segment of session 'x'": how messages call it.
std::string segment_name(layout::SegmentKind kind, const std::string& session);
// Inode of this process's pid namespace; 0 where /proc does not tell.
std::uint64_t pid_namespace() noexcept;

// Sets the file's size. Sparse: nothing is backed yet.
void resize_file(int fd, std::uint64_t nbytes, const std::string& name);
// Backs [offset, offset + nbytes) with memory now, so that touching it later cannot raise SIGBUS.
// False when the file system has no room; Error(system) for anything else.
bool back_range(int fd, std::uint64_t offset, std::uint64_t nbytes, const std::string& name);

// Writes a header into zeroed memory, the magic last (release).
void write_header(layout::SegmentHeader& header, layout::SegmentKind kind, const std::string& session, std::uint64_t nbytes);
// Reads the header through the descriptor and checks it against the file before anything is mapped.
// Error(corrupt): shorter than `min_bytes`, not finished, size or session differ. Error(layout_mismatch): other version,
// fingerprint or kind. Both name the segment, what was found and what was expected. Returns the file's size.
std::uint64_t check_header(int fd, layout::SegmentKind kind, const std::string& session, std::uint64_t min_bytes);

}  // namespace tq
