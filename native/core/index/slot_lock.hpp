// Held by who opens the environment or takes a slot of LMDB's reader table. LMDB has locks of its own for both (lock.mdb), which
// know neither deadlines nor names: whoever stood still inside would stall every process that joins, and every thread that reads
// for the first time. Under this one they are never contended. Reads that have a slot take no lock at all.
//
// A record lock of the process, unlike the lease files' (lease_file.hpp): the kernel tells who holds it, and a child of a fork
// does not. It would be dropped when any descriptor of the file closes in this process, hence the mutex, and nobody else
// opens it.
#pragma once

#include <string>

namespace tq::index {

class SlotLock {
 public:
  // Error(timeout) naming the holder, after 30 s or at the call's own deadline (patience.hpp).
  explicit SlotLock(const std::string& directory);
  ~SlotLock();
  SlotLock(const SlotLock&) = delete;
  SlotLock& operator=(const SlotLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace tq::index
