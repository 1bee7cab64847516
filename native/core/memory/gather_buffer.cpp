#include "core/memory/gather_buffer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <new>
#include <string>

#include "core/memory/fork_gate.hpp"
#include "core/memory/mapping_budget.hpp"

namespace tq {

namespace {

constexpr std::uint64_t huge_page_nbytes = 2u << 20;
constexpr std::uint64_t step_nbytes = 64u << 10;  // sizes are multiples of it, so that batches of about one size find each other's
constexpr std::uint64_t pooled_from_nbytes = 128u << 10;  // below, the allocator keeps warm memory itself
constexpr std::align_val_t alignment{64};

struct Buffer {
  std::byte* base;
  std::uint64_t nbytes;
};

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

void unmap(Buffer buffer) noexcept { ::munmap(buffer.base, buffer.nbytes); }

// Aligned to huge pages where it fills at least one; the rest of its end comes in small ones.
Buffer map(std::uint64_t nbytes) {
  const bool huge = nbytes >= huge_page_nbytes;
  const std::uint64_t lead = huge ? huge_page_nbytes : 0;
  void* found = ::mmap(nullptr, nbytes + lead, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) {
    throw MappingLimitError("no memory for a copy of " + std::to_string(nbytes) +
                            " bytes: this process may have no more (ulimit -v), or the machine has none");
  }
  auto* base = static_cast<std::byte*>(found);
  if (!huge) return {base, nbytes};
  const std::uint64_t skipped = round_up(reinterpret_cast<std::uint64_t>(base), huge_page_nbytes) - reinterpret_cast<std::uint64_t>(base);
  if (skipped > 0) ::munmap(base, skipped);
  if (lead > skipped) ::munmap(base + skipped + nbytes, lead - skipped);
  // Asked for, never needed: where the system has none, the same memory comes in small pages.
  ::madvise(base + skipped, nbytes, MADV_HUGEPAGE);
  return {base + skipped, nbytes};
}

// Buffers without an owner, the one given back last at the end. Its mutex is held inside operations and deleters only, so it is
// free at every fork, and a child goes on with its own copy of the memory.
class Pool {
 public:
  // Never destroyed: tensors may die after the statics of this library.
  static Pool& instance() {
    static auto* pool = new Pool();
    return *pool;
  }

  // The smallest that wastes at most a quarter; base null when there is none.
  Buffer take(std::uint64_t nbytes) {
    const std::lock_guard lock(mutex_);
    std::size_t best = size_;
    for (std::size_t i = 0; i < size_; ++i) {
      if (free_[i].nbytes < nbytes || free_[i].nbytes > nbytes + nbytes / 4 + step_nbytes) continue;
      if (best == size_ || free_[i].nbytes <= free_[best].nbytes) best = i;
    }
    return best == size_ ? Buffer{nullptr, 0} : remove(best);
  }

  void give_back(Buffer buffer) noexcept {
    std::array<Buffer, capacity + 1> dropped;  // unmapped outside the lock
    std::size_t n_dropped = 0;
    {
      const std::lock_guard lock(mutex_);
      if (buffer.nbytes > gather_pool_limit_nbytes) {
        dropped[n_dropped++] = buffer;
      } else {
        while (size_ == capacity || pooled_nbytes_ + buffer.nbytes > gather_pool_limit_nbytes) dropped[n_dropped++] = remove(0);
        free_[size_++] = buffer;
        pooled_nbytes_ += buffer.nbytes;
      }
    }
    for (std::size_t i = 0; i < n_dropped; ++i) unmap(dropped[i]);
  }

  std::uint64_t pooled_nbytes() noexcept {
    const std::lock_guard lock(mutex_);
    return pooled_nbytes_;
  }

  std::uint64_t trim() noexcept {
    const std::lock_guard lock(mutex_);
    const std::uint64_t nbytes = pooled_nbytes_;
    while (size_ > 0) unmap(remove(size_ - 1));
    return nbytes;
  }

 private:
  static constexpr std::size_t capacity = 64;

  Buffer remove(std::size_t i) noexcept {
    const Buffer buffer = free_[i];
    std::copy(free_.begin() + i + 1, free_.begin() + size_, free_.begin() + i);
    --size_;
    pooled_nbytes_ -= buffer.nbytes;
    return buffer;
  }

  std::mutex mutex_;
  std::array<Buffer, capacity> free_{};
  std::size_t size_ = 0;
  std::uint64_t pooled_nbytes_ = 0;
};

}  // namespace

std::shared_ptr<std::byte> gather_buffer(std::uint64_t nbytes) {
  const OperationGuard operation;
  if (nbytes < pooled_from_nbytes) {
    auto* base = static_cast<std::byte*>(::operator new(nbytes, alignment));
    return {base, [](std::byte* p) noexcept { ::operator delete(p, alignment); }};
  }
  const std::uint64_t wanted = round_up(nbytes, step_nbytes);
  Buffer buffer = Pool::instance().take(wanted);
  if (buffer.base == nullptr) {
    try {
      buffer = map(wanted);
    } catch (const MappingLimitError&) {
      if (Pool::instance().trim() == 0) throw;  // what is in use comes before what is kept
      buffer = map(wanted);
    }
  }
  return {buffer.base, [size = buffer.nbytes](std::byte* p) noexcept {
            const DeleterGuard guard;
            Pool::instance().give_back({p, size});
          }};
}

std::uint64_t pooled_gather_nbytes() noexcept {
  const OperationGuard operation;
  return Pool::instance().pooled_nbytes();
}

std::uint64_t trim_gather_pool() {
  const OperationGuard operation;
  return Pool::instance().trim();
}

}  // namespace tq
