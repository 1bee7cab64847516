// A file that blocks lie in: the payload segment in memory, or the spill file on disk. It has its full virtual size from the
// start and is backed in steps; whoever touches a span has had it backed before (`grow` under the caller's lock, then the index
// hands the span out), so that SIGBUS cannot happen. Views map it, privately or read-only, wherever it lies.
//
// Hold it by shared_ptr: views keep the file mapped after the store was closed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/memory/kept_mappings.hpp"
#include "core/memory/segment.hpp"
#include "core/types.hpp"

namespace tq {

class DataRegion {
 public:
  DataRegion(const DataRegion&) = delete;
  DataRegion& operator=(const DataRegion&) = delete;

  const std::string& name() const noexcept { return name_; }
  int fd() const { return fd_.ours(name_); }  // Error(closed)
  int fd_or_none() const noexcept { return fd_.is_ours() ? fd_.get() : -1; }
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }

  // [0, backed) is backed. Acquire: follows the fallocate of whoever stored it.
  std::uint64_t backed_bytes() const noexcept;
  // Backs up to `end` (at most size_bytes) and returns the new backed end. Error(storage_full) when the file system has
  // no room: what was backed before stays. Under the caller's lock: two growers would only do the work twice.
  std::uint64_t grow(std::uint64_t end);
  // Backs the pages around a span that the caller owns, after a punch. False: no room.
  bool back(Span span);
  // For a span just reserved, before its first byte is touched: backs it if anything was ever punched, else costs one load.
  // The punch of these bytes precedes (its owner's abandon, our reserve: two commits) this load. False: no room.
  bool ensure_backed(Span span);

  // On the PROT_READ mapping of this process: a write kills the offender, never the data. Error(invalid) outside the region.
  const std::byte* readable(Span span) const;

  KeptMappings& kept() const noexcept { return *kept_; }                // of views
  KeptMappings& kept_shared() const noexcept { return *kept_shared_; }  // of producers
  // Whole pages around a span, as a range of file offsets (page aligned), for mappings of its own.
  struct FileRange {
    std::uint64_t offset;       // in the file
    std::uint64_t nbytes;
    std::uint64_t lead_nbytes;  // the span begins so far behind `offset`
  };
  FileRange pages_around(Span span) const;
  // The same out to whole huge pages where the span is large enough to have some, so that its ends are mapped as they are too.
  FileRange huge_pages_around(Span span) const;

 protected:
  // Words in shared memory, for the life of the region.
  struct Words {
    std::atomic<std::uint64_t>* backed = nullptr;
    std::atomic<std::uint64_t>* punched = nullptr;
  };
  // `base`: the offset of the region's first span. `tail_bytes`: of the file, mapped behind the region's size, and not grown into.
  DataRegion(std::string name, int fd, std::uint64_t file_bytes, std::uint64_t base, std::uint64_t tail_bytes = 0);
  ~DataRegion() = default;
  void set_words(Words words) noexcept { words_ = words; }
  void check(Span span) const;
  std::uint64_t file_offset(Span span) const noexcept;
  // Gives the whole pages inside a span that the caller owns back to the file system; bytes punched. `supported` false: it cannot.
  struct Punched { std::uint64_t nbytes; bool supported; };
  Punched punch_pages(Span span);
  std::uint64_t inner_pages(Span span, std::uint64_t* begin) const noexcept;  // what punch_pages would punch

 private:
  const std::string name_;
  const FileDescriptor fd_;
  const std::uint64_t tail_bytes_;
  const std::uint64_t size_bytes_;
  const std::uint64_t base_;
  Words words_;
  std::unique_ptr<KeptMappings> kept_;
  std::unique_ptr<KeptMappings> kept_shared_;
  SharedMapping readable_;
};

}  // namespace tq
