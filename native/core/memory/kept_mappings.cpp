#include "core/memory/kept_mappings.hpp"

#include <mutex>
#include <new>

#include "core/memory/mapping_budget.hpp"

namespace tq {

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
    mapping_budget::unmap(kept_[surplus].base, kept_[surplus].nbytes);
    ++surplus;
  }
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(surplus));
  if (range.nbytes > max_nbytes_) return mapping_budget::unmap(range.base, range.nbytes);
  try {
    kept_.push_back(range);
    nbytes_ += range.nbytes;
  } catch (const std::bad_alloc&) {
    mapping_budget::unmap(range.base, range.nbytes);
  }
}

void KeptMappings::clear() noexcept {
  const std::lock_guard lock(mutex_);
  for (const MappedRange& range : kept_) mapping_budget::unmap(range.base, range.nbytes);
  kept_.clear();
  nbytes_ = 0;
}

std::size_t KeptMappings::count() const noexcept {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

}  // namespace tq
