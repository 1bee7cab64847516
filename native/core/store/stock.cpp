#include "core/store/stock.hpp"

#include <algorithm>
#include <bit>

namespace tq {

std::uint64_t Stock::class_of(std::uint64_t nbytes) noexcept {
  constexpr std::uint64_t unit = 64;  // what the index rounds to
  const std::uint64_t power = std::bit_ceil(std::max(nbytes, unit));
  const std::uint64_t between = power / 4 * 3;
  return between >= nbytes && between % unit == 0 ? between : power;
}

std::optional<Reservation> Stock::take(std::uint64_t size_class) {
  const std::lock_guard lock(mutex_);
  const auto shelf = shelves_.find(size_class);
  if (shelf == shelves_.end() || shelf->second.reservations.empty()) return std::nullopt;
  const Reservation found = shelf->second.reservations.back();
  shelf->second.reservations.pop_back();
  return found;
}

std::size_t Stock::next_batch(std::uint64_t size_class) {
  const std::lock_guard lock(mutex_);
  Shelf& shelf = shelves_[size_class];
  const std::size_t batch = shelf.next;
  shelf.next = std::min(largest_batch, 2 * shelf.next);
  return batch;
}

void Stock::add(std::uint64_t size_class, Reservation reservation) {
  const std::lock_guard lock(mutex_);
  shelves_[size_class].reservations.push_back(reservation);
}

std::vector<Reservation> Stock::drain() {
  const std::lock_guard lock(mutex_);
  std::vector<Reservation> all;
  for (auto& [size_class, shelf] : shelves_) {
    all.insert(all.end(), shelf.reservations.begin(), shelf.reservations.end());
  }
  shelves_.clear();
  return all;
}

void Stock::forget() noexcept { shelves_.clear(); }

}  // namespace tq
