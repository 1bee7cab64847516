// The `leases` folder of a session: which files there are, and whose process is gone.
//
// Everything goes through one descriptor of the folder, opened at attach: when a session was removed and another of the same
// name stands in its place, with the same owner ids, a process that still holds views of the old one touches nothing of it.
#pragma once

#include <string>
#include <vector>

#include "core/memory/segment.hpp"
#include "core/types.hpp"

namespace tq {

class LeaseFolder {
 public:
  explicit LeaseFolder(const std::string& path);  // Error(session_not_found): there is none

  static std::string file_name(OwnerId owner);       // "7.lease"
  static std::string temporary_name(OwnerId owner);  // ".7.tmp"

  struct Listing {
    std::vector<OwnerId> owners;           // ascending
    std::vector<std::string> unfinished;   // temporary files, maybe of somebody who died making them
  };
  Listing list() const;  // Error(session_not_found): the folder was removed

  // A new file, locked by this process as its owner. Error(session_not_found), Error(storage_full).
  FileDescriptor create_locked(const std::string& name) const;
  FileDescriptor open(const std::string& name) const;                      // for reading; empty when there is none
  bool rename(const std::string& from, const std::string& to) const;       // false: `from` is gone, or `to` is there (`from` goes then)
  void remove(const std::string& name) const noexcept;                     // quiet when it is gone

  // Whether the process of a file is gone: its lock could be taken. Takes nothing (F_OFD_GETLK). No file: dead.
  bool is_dead(const std::string& name) const;

 private:
  std::string path_;
  int folder_fd() const;  // Error(closed)

  FileDescriptor fd_;
};

}  // namespace tq
