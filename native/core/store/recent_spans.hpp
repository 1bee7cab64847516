// Where this process put its latest blocks. It takes such a place again before any other, when it is free: those bytes are in
// its caches, and its own and its readers' page tables know them. A hint, no claim: the index decides.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

namespace tq {

class RecentSpans {
 public:
  // Offsets at which blocks of exactly `nbytes` were reserved, latest first: another size would cut a hole where one fits.
  std::vector<std::uint64_t> offsets(std::uint64_t nbytes) const;
  void add(std::uint64_t nbytes, std::uint64_t offset);

 private:
  struct Place {
    std::uint64_t nbytes = 0;
    std::uint64_t offset = 0;
    friend bool operator==(const Place&, const Place&) = default;
  };
  // Two are in turn while a reader holds the last block; a few more for batches of several kinds in turn.
  static constexpr std::size_t n_kept = 8;

  mutable std::mutex mutex_;
  std::array<Place, n_kept> places_{};  // latest first; no bytes: none
};

}  // namespace tq
