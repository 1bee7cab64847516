// A file that would grow beyond RLIMIT_FSIZE costs a process its life where it leaves SIGXFSZ as it is (Python ignores it,
// a host of Python need not). While one of these is alive that is an error of the call (EFBIG) instead.
#pragma once

#include <csignal>
#include <cstdint>

namespace tq {

class FileSizeSignal {
 public:
  FileSizeSignal() noexcept;  // without a limit one getrlimit, and nothing else
  ~FileSizeSignal();
  FileSizeSignal(const FileSizeSignal&) = delete;
  FileSizeSignal& operator=(const FileSizeSignal&) = delete;

  bool allows(std::uint64_t nbytes) const noexcept { return nbytes <= limit_; }

 private:
  std::uint64_t limit_;
  bool held_ = false;
  sigset_t before_;
};

}  // namespace tq
