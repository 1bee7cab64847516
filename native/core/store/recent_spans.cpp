#include "core/store/recent_spans.hpp"

#include <algorithm>

namespace tq {

std::vector<std::uint64_t> RecentSpans::offsets(std::uint64_t nbytes) const {
  std::vector<std::uint64_t> found;
  if (nbytes == 0) return found;
  const std::lock_guard lock(mutex_);
  for (const Place& place : places_) {
    if (place.nbytes == nbytes) found.push_back(place.offset);
  }
  return found;
}

void RecentSpans::add(std::uint64_t nbytes, std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  const Place place{nbytes, offset};
  auto known = std::find(places_.begin(), places_.end(), place);
  if (known == places_.end()) --known;  // the oldest makes room
  std::move_backward(places_.begin(), known, known + 1);
  places_.front() = place;
}

}  // namespace tq
