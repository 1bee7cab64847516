// The lease file of this process: `<directory>/<owner>.lease`, an array of block refs that only this process writes and
// every retirer reads (lease_directory.hpp).
//
// Alive means: an open-file-description lock is held on it. The kernel drops that lock when the last descriptor of the open
// file goes (exit, kill, exec); it is never renewed, so a process that hangs or is stopped stays alive.
//
// The file appears under its name only when it is locked and finished: it is made under a temporary name, locked, formatted
// and renamed. Between creation and lock a reaper may take it for dead and remove it; the rename then fails and we try again.
//
// Entries: taken by compare-and-swap 0 -> "being taken" and then a store of the ref (operations), released by a store of 0
// (deleters; no lock). The high-water mark is raised before the first entry beyond it is stored. All of it is ordered before
// the reader's full fence (lease.hpp), so a retirer whose fence is later sees the ref; one that meets "being taken" has
// fenced before the reader did, who then sees its word and gives way.
//
// Since when: the time of an entry stands in an array of its own, so that scans read the refs only. It is stored between the
// two steps, when nobody else writes it: after the entry was won, or a thread that lost it would overwrite the winner's time,
// however late; and before the ref is there (release), so that who reads the ref (acquire) never finds the time of an earlier
// claim. That of a later one is found out by a second look at the entry (lease_directory.cpp): the time is stored with
// release and read with acquire, after "being taken".
//
// Fork: before_fork writes a second file with the same entries and times, under a new owner id and locked through a descriptor of its
// own; the child adopts file and descriptor (entry numbers stay valid), the parent closes its copy, and the lock lives on in
// the child without a gap. With nothing leased no file is written; the child makes its own at its first need.
// If the second file cannot be written, the child's claims are void: its views are made inaccessible (private_mapping.hpp) and
// every later take or owner() throws, saying why. Unless that is because the session is over: then nothing will ever be
// written where the views look, and they stay readable.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "core/memory/control_segment.hpp"
#include "core/memory/fork_registry.hpp"
#include "core/memory/lease_folder.hpp"
#include "core/memory/segment.hpp"
#include "core/types.hpp"

namespace tq {

class LeaseFile final : public ForkParticipant {
 public:
  // `directory` exists. Error(storage_full) when its file system is full; Error(session_not_found) when it is gone.
  static std::shared_ptr<LeaseFile> create(const std::string& directory, std::shared_ptr<ControlSegment> control);
  // The file is removed when the last claim dies: the store and every lease co-own this object.
  ~LeaseFile() override;

  // Of this process: another one in a forked child (where the call may create the file, hence may throw).
  OwnerId owner();

  // Stores a claim, taken at `since_ns` (lease_clock.hpp), and returns its entry. Inside an operation. Error(storage_full) when all 2^20 entries are taken or the
  // file cannot grow: the caller copies in smaller batches or gives up. The claim counts only after lease.hpp's re-check.
  std::uint32_t take(BlockRef block, std::int64_t since_ns);
  // Any thread, any time, no lock; inside a DeleterGuard or an operation.
  void release(std::uint32_t entry) noexcept;
  // Error(closed): the descriptor that holds this process's lock was closed by somebody else, so that others take the process
  // for dead and its leases for void. For who is about to take some.
  void check_descriptor() const;
  // Claims held now.
  std::uint32_t held() const noexcept;
  // The hand-over of a fork failed: claims inherited by this (child) process are void.
  bool claims_void() const noexcept;

  void before_fork() noexcept override;
  void after_fork_in_parent() noexcept override;
  void after_fork_in_child() noexcept override;

 private:
  struct File;  // one lease file on disk: descriptor (with the lock), mapping, path
  LeaseFile(const std::string& directory, std::shared_ptr<ControlSegment> control);
  File& file();                    // this process's, made when missing
  void extend(File& file, std::uint32_t entries);  // doubles the backed part, if nobody did since the caller saw `entries`

  const LeaseFolder folder_;
  const std::shared_ptr<ControlSegment> control_;
  std::mutex grow_mutex_;          // creation and growth; free at every fork, since operations are excluded there
  std::unique_ptr<File> file_;     // null in a child before its first need
  std::unique_ptr<File> handover_; // between before_fork and after_fork only
  // How this process came by its claims. Changes in a fork only, when no other thread is inside; hence relaxed.
  enum class Claims { own, lost, over };  // lost: a child without a hand-over. over: one of a session that is over
  std::atomic<Claims> claims_{Claims::own};
  Claims claims_of_child_ = Claims::own;  // what before_fork decided
  std::string failure_;                   // why the hand-over failed; kept in the child
  std::atomic<File*> current_{nullptr};
  std::atomic<std::uint32_t> held_{0};
  std::atomic<std::uint32_t> hint_{0};  // where a free entry may be. Relaxed: wrong is only slower
};

}  // namespace tq
