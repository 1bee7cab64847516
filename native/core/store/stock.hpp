// Space that a process reserved ahead for its small puts: one transaction for many, so that such a put is one transaction
// itself (the publication). What lies here is recorded as pending under the process's lease file like any reservation, and
// goes the same ways when the process dies.
//
// Kept small: extents of one size class are fetched in batches that double with use, up to 16 and to a 256th of what is
// free, so that a process that puts once holds nothing and a store that runs full is not full of stock.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "core/index/index.hpp"

namespace tq {

class Stock {
 public:
  static constexpr std::uint64_t largest_nbytes = 32u << 10;
  static constexpr std::size_t largest_batch = 16;

  // The size at which `nbytes` is reserved: a power of two, or one and a half. At most a third is left unused.
  static std::uint64_t class_of(std::uint64_t nbytes) noexcept;

  std::optional<Reservation> take(std::uint64_t size_class);
  // How many to reserve now that `take` found none: 1, then twice as many each time.
  std::size_t next_batch(std::uint64_t size_class);
  void add(std::uint64_t size_class, Reservation reservation);
  // Everything, to be given back.
  std::vector<Reservation> drain();
  // In a forked child: what is here is the parent's. The fork gate is held, so nobody holds the mutex.
  void forget() noexcept;

 private:
  struct Shelf {
    std::vector<Reservation> reservations;
    std::size_t next = 1;
  };
  std::mutex mutex_;
  std::map<std::uint64_t, Shelf> shelves_;
};

}  // namespace tq
