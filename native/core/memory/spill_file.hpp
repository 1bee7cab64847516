// The spill file: where cold blocks lie when memory is short. Written with pwrite by whoever moves a block there, read through
// mappings like the payload segment, and like it backed before use: a full disk is "nothing more can be spilled".
//
// Its words (how far it is backed, whether it has holes) and its id lie in the payload segment's header, in memory, so that
// nothing but blocks is ever read through a mapping of the file. Of what others may do to a file on disk, a name that was given
// to another file and another length are noticed (an id, fstat before blocks are mapped); that a disk fails while a mapped page
// is read in is SIGBUS, as for any mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/memory/data_region.hpp"
#include "core/memory/payload_segment.hpp"

namespace tq {

class SpillFile final : public DataRegion {
 public:
  // By the creator of the session, after the payload segment was formatted. Empty file, one page of it backed.
  // Error(storage_full): not even that.
  static void format(int fd, int payload_fd, const std::string& session, std::uint64_t spill_bytes);
  // Duplicates the descriptor. `payload` outlives it. Error(corrupt): cut, or not the file that was made with this session;
  // Error(layout_mismatch): of another version.
  SpillFile(int fd, const std::string& session, const PayloadSegment& payload);
  // Whether this is a spill file of this project at all, of whatever session and version, or one whose creator died.
  static bool is_one(int fd);

  // Error(corrupt): the file was cut or grew since.
  void check_length() const;
  // `source` to the span, which the caller reserved. False: the file system has no room after all (one that allocates when it
  // writes); then nothing may be read from the span. Error(system): the disk failed.
  bool write(Span span, const std::byte* source);
  // See PayloadSegment::punch; 0 also where the file system cannot.
  std::uint64_t punch(Span span) { check(span); return punch_pages(span).nbytes; }
};

}  // namespace tq
