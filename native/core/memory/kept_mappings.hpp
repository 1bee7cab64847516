// Private mappings that nobody uses any more and that nobody wrote to, kept for the next view of the same range: its pages are
// mapped already, so that reading it faults no more than the last time (W on 4 KiB pages: 8 ms of 1,028 faults), and dropping a
// view unmaps nothing.
//
//   view dies -> the deleter gives up the lease and queues the mapping -> the keeper's thread asks the kernel whether any page
//   was written -> no: kept; yes: unmapped -> a get of the same range takes it (and its own lease, as always)
//
// Why a kept mapping shows the stored bytes: a page of a private mapping shows the file's page until it is written, and then
// its own copy for ever. The look comes after the last tensor died, so nothing writes any more; a mapping without a page of its
// own (neither present nor swapped out) is as good as a fresh one. Taking one removes it from the list: one owner at a time.
// A kept mapping needs no lease, since nobody reads through it; extents may be reused, trimmed or moved to huge pages under it.
//
// Mappings of producers are kept in a list of their own, without a look: producer_mapping.hpp.
//
// The deleter pushes to a lock-free stack and wakes the thread; it takes no lock, opens nothing and waits for nobody.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace tq {

class DataRegion;

struct MappedRange {
  std::byte* base = nullptr;
  std::uint64_t offset = 0;  // in the file
  std::uint64_t nbytes = 0;
};

// Of one segment. Every mapping in it counts in mapping_budget, as it did while it was in use.
class KeptMappings {
 public:
  explicit KeptMappings(std::uint64_t max_nbytes) : max_nbytes_(max_nbytes) {}
  ~KeptMappings() { clear(); }
  KeptMappings(const KeptMappings&) = delete;
  KeptMappings& operator=(const KeptMappings&) = delete;

  std::byte* take(std::uint64_t offset, std::uint64_t nbytes) noexcept;  // null: none of exactly this range
  void keep(const MappedRange& range) noexcept;  // unmaps the oldest beyond `max_nbytes` or `max_count`
  void clear() noexcept;
  std::size_t count() const noexcept;

  static constexpr std::size_t max_count = 64;

 private:
  const std::uint64_t max_nbytes_;
  // Held for a few list operations and munmaps, inside operations or deleters only: free at every fork.
  mutable std::mutex mutex_;
  std::vector<MappedRange> kept_;  // oldest first
  std::uint64_t nbytes_ = 0;
};

namespace mapping_keeper {

// Smaller mappings fault little and are unmapped at once.
inline constexpr std::uint64_t worth_keeping_nbytes = 1u << 20;

// Made beforehand, so that a deleter allocates nothing. Keeps the segment mapped until the look.
struct Node {
  std::shared_ptr<const DataRegion> payload;
  MappedRange range;
  Node* next = nullptr;
};

// Starts the thread of this process unless it runs. Inside an operation. False: there is none to be had, unmap instead.
bool start() noexcept;
// Whether `retire` would be served.
bool running() noexcept;
void retire(std::unique_ptr<Node> node) noexcept;
// Mappings queued and not looked at yet, for tests.
std::uint64_t backlog() noexcept;

}  // namespace mapping_keeper

}  // namespace tq
