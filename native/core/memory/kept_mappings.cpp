#include "core/memory/kept_mappings.hpp"

#include <sys/mman.h>

#include <utility>

#include "core/memory/mapping_budget.hpp"

namespace tq {

namespace {

void unmap(const MappedRange& range) noexcept {
  ::munmap(range.base, range.nbytes);
  mapping_budget::release();
}

}  // namespace

std::byte* KeptMappings::take(std::uint64_t offset, std::uint64_t nbytes) noexcept {
  const std::lock_guard lock(mutex_);
  // The newest first: its pages are likeliest to be in the caches.
  for (std::size_t i = kept_.size(); i-- > 0;) {
    if (kept_[i].offset != offset || kept_[i].nbytes != nbytes) continue;
    std::byte* base = kept_[i].base;
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(i));
    nbytes_ -= nbytes;
    return base;
  }
  return nullptr;
}

void KeptMappings::keep(const MappedRange& range) noexcept {
  const std::lock_guard lock(mutex_);
  std::size_t surplus = 0;
  while (surplus < kept_.size() &&
         (nbytes_ + range.nbytes > max_nbytes_ || kept_.size() - surplus >= max_count)) {
    nbytes_ -= kept_[surplus].nbytes;
    unmap(kept_[surplus++]);
  }
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(surplus));
  if (range.nbytes > max_nbytes_) return unmap(range);
  try {
    kept_.push_back(range);
    nbytes_ += range.nbytes;
  } catch (const std::bad_alloc&) {
    unmap(range);
  }
}

void KeptMappings::clear() noexcept {
  const std::lock_guard lock(mutex_);
  for (const MappedRange& range : kept_) unmap(range);
  kept_.clear();
  nbytes_ = 0;
}

std::size_t KeptMappings::count() const noexcept {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

}  // namespace tq
