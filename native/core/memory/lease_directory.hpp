// All lease files of a session, as a retirer, a reaper and `tq stats` see them.
//
// A scan reads the directory anew, maps files that it has not seen (mappings are kept: a file never changes identity, owner
// ids do not repeat) and reads the entries below each high-water mark with acquire. The files of the dead hold no claim.
// A file that vanishes meanwhile belonged to a process that held nothing or is dead.
//
// Fork copies claims into a second file and the parent may then release its own. A scan that listed the directory before the
// second file was there and read the parent's entry after its release would miss both. Hence `handovers` in the control
// segment: incremented (seq_cst) after the second file is in place and before the parent goes on. A scan that reads the
// parent's 0 (acquire; the release store follows the increment) then also reads the increment at its end, and starts over.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

#include "core/memory/control_segment.hpp"
#include "core/memory/lease_folder.hpp"
#include "core/memory/segment.hpp"
#include "core/types.hpp"

namespace tq {

// One claim, as its entry says.
struct HeldLease {
  BlockRef block;
  double age_s = 0;
};

struct ClientInfo {
  OwnerId owner = 0;
  pid_t pid = 0;              // 0: a child that has not taken its file over yet
  double start_time_s = 0;    // since boot, of the process
  double age_s = 0;           // of the lease file
  bool alive = false;
  std::vector<HeldLease> leased;  // one per claim, repeated where a block is claimed twice; kept for the dead, for reports
};

class LeaseDirectory {
 public:
  LeaseDirectory(const std::string& directory, std::shared_ptr<ControlSegment> control);  // Error(session_not_found)
  ~LeaseDirectory();

  // Those of `blocks` on which no living process has a claim, in order. The caller has set their words and fenced
  // (retire.hpp). Nothing is returned when hand-overs keep interfering: try again later.
  std::vector<BlockRef> unleased(std::span<const BlockRef> blocks);

  std::vector<ClientInfo> clients();
  std::vector<ClientInfo> dead();
  // Removes the file of a dead owner, after whatever it left in the index was given back. Quiet when it is gone, or alive.
  void remove(OwnerId owner);

  bool is_dead(OwnerId owner) const { return folder_.is_dead(LeaseFolder::file_name(owner)); }

 private:
  struct Entry;  // a mapped lease file
  void refresh();
  const LeaseFolder folder_;
  const std::shared_ptr<ControlSegment> control_;
  std::mutex mutex_;  // one scan at a time in a process; only held inside operations
  std::map<OwnerId, std::unique_ptr<Entry>> entries_;
};

}  // namespace tq
