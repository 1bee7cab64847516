// Which file a descriptor stands for. A program that becomes a daemon closes all descriptors, ours among them, and what it
// opens next gets their numbers: what we wrote there would be written into its files, and closing would close them.
#pragma once

#include <sys/types.h>

#include <string>

namespace tq {

class FileIdentity {
 public:
  FileIdentity() = default;                  // of no file
  static FileIdentity of(int fd) noexcept;   // of no file where it is not open
  bool is_of(int fd) const noexcept;         // fd is open, and on that file

 private:
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// ClosedError: `what` was closed in this process, by somebody else.
[[noreturn]] void throw_descriptor_lost(const std::string& what);

}  // namespace tq
