#include "core/memory/lease_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string_view>

#include "core/error.hpp"

namespace tq {

namespace {

Error gone(const std::string& path) {
  return Error(ErrorCode::session_not_found, "the session's lease folder " + path + " is gone: the session was removed");
}

// An empty range from 0 is the whole file.
struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

LeaseFolder::LeaseFolder(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)) {
  if (fd_.get() >= 0) return;
  if (errno == ENOENT) throw gone(path_);
  throw Error::system("cannot open " + path_, errno);
}

std::string LeaseFolder::file_name(OwnerId owner) { return std::to_string(owner) + ".lease"; }
std::string LeaseFolder::temporary_name(OwnerId owner) { return "." + std::to_string(owner) + ".tmp"; }

int LeaseFolder::folder_fd() const {
  if (!fd_.is_ours()) throw_descriptor_lost("folder of leases " + path_);
  return fd_.get();
}

LeaseFolder::Listing LeaseFolder::list() const {
  struct stat status {};
  const int own = folder_fd();
  if (::fstat(own, &status) == 0 && status.st_nlink == 0) throw gone(path_);
  // Opened anew for each listing: a reading position belongs to the open file, and threads may list at once.
  const int fd = ::openat(own, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) throw gone(path_);
    throw Error::system("cannot list " + path_, errno);
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::fdopendir(fd), ::closedir);
  if (folder == nullptr) {
    const int error = errno;
    ::close(fd);
    throw Error::system("cannot list " + path_, error);
  }
  Listing listing;
  for (;;) {
    errno = 0;
    const dirent* item = ::readdir(folder.get());
    if (item == nullptr) {
      if (errno != 0) throw Error::system("cannot list " + path_, errno);
      break;
    }
    const std::string_view file = item->d_name;
    if (file.ends_with(".lease")) {
      OwnerId owner = 0;
      const auto [end, error] = std::from_chars(file.data(), file.data() + file.size(), owner);
      if (error == std::errc() && std::string_view(end) == ".lease") listing.owners.push_back(owner);
    } else if (file.starts_with(".") && file.ends_with(".tmp")) {
      listing.unfinished.emplace_back(file);
    }
  }
  std::sort(listing.owners.begin(), listing.owners.end());
  return listing;
}

FileDescriptor LeaseFolder::create_locked(const std::string& name) const {
  FileDescriptor fd(::openat(folder_fd(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (fd.get() < 0) {
    if (errno == ENOENT) throw gone(path_);
    if (errno == ENOSPC) throw Error(ErrorCode::storage_full, "no room for a file in " + path_);
    throw Error::system("cannot create a file in " + path_, errno);
  }
  ::fchmod(fd.get(), 0600);  // the umask may have taken bits of our own
  struct flock lock = whole_file();
  if (::fcntl(fd.get(), F_OFD_SETLK, &lock) != 0) {
    const int error = errno;
    remove(name);
    throw Error::system("cannot lock a file in " + path_, error);
  }
  return fd;
}

FileDescriptor LeaseFolder::open(const std::string& name) const {
  // A pipe in the place of a file would block, a link could lead anywhere.
  FileDescriptor fd(::openat(folder_fd(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd.get() < 0 && errno != ENOENT) throw Error::system("cannot open " + path_ + "/" + name, errno);
  return fd;
}

bool LeaseFolder::rename(const std::string& from, const std::string& to) const {
  // Never over another process's file, whose claims would be lost: the counter of owners may have been damaged.
  if (::renameat2(folder_fd(), from.c_str(), fd_.get(), to.c_str(), RENAME_NOREPLACE) == 0) return true;
  if (errno == EEXIST) {
    remove(from);
    return false;
  }
  if (errno == ENOENT) return false;
  throw Error::system("cannot rename " + path_ + "/" + from, errno);
}

void LeaseFolder::remove(const std::string& name) const noexcept {
  try {
    ::unlinkat(folder_fd(), name.c_str(), 0);
  } catch (const Error&) {  // the folder was closed under us: who reaps removes it
  }
}

bool LeaseFolder::is_dead(const std::string& name) const {
  const FileDescriptor fd = open(name);
  if (fd.get() < 0) return true;
  struct flock lock = whole_file();
  if (::fcntl(fd.get(), F_OFD_GETLK, &lock) != 0) throw Error::system("cannot ask for the lock of " + path_ + "/" + name, errno);
  return lock.l_type == F_UNLCK;
}

}  // namespace tq
