#include "memory/support.hpp"

#include <sched.h>
#include <sys/mount.h>

namespace tq_test {

bool mount_small_tmpfs(const std::string& path, std::uint64_t nbytes) {
  if (::unshare(CLONE_NEWNS) != 0) {
    // An ordinary user may become root of a namespace of its own; writing the map is not needed to mount in it.
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  }
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  return ::mount("tmpfs", path.c_str(), "tmpfs", 0, ("size=" + std::to_string(nbytes)).c_str()) == 0;
}

}  // namespace tq_test
