#include "core/file_identity.hpp"

#include <sys/stat.h>

#include "core/error.hpp"

namespace tq {

FileIdentity FileIdentity::of(int fd) noexcept {
  FileIdentity found;
  struct stat status {};
  if (fd >= 0 && ::fstat(fd, &status) == 0) {
    found.device_ = status.st_dev;
    found.inode_ = status.st_ino;
  }
  return found;
}

bool FileIdentity::is_of(int fd) const noexcept {
  struct stat status {};
  return inode_ != 0 && ::fstat(fd, &status) == 0 && status.st_ino == inode_ && status.st_dev == device_;
}

void throw_descriptor_lost(const std::string& what) {
  throw Error(ErrorCode::closed, "the descriptor of the " + what +
                                     " was closed in this process, and not by the session: programs that become daemons close "
                                     "all of them. Attach after that (tq.attach), or leave ours open");
}

}  // namespace tq
