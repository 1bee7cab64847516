#include "core/memory/producer_mapping.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/error.hpp"
#include "core/memory/fork_gate.hpp"
#include "core/memory/huge_pages.hpp"
#include "core/memory/mapping_budget.hpp"
#include "core/pause.hpp"

namespace tq {

GiveBackQueue::~GiveBackQueue() {
  for (Node* node = head_.load(std::memory_order_acquire); node != nullptr;) delete std::exchange(node, node->next);
}

void GiveBackQueue::push(std::unique_ptr<Node> node) noexcept {
  Node* pushed = node.release();
  pushed->next = head_.load(std::memory_order_relaxed);
  // Release: everything the pusher did with the extent, unmapping included, is before the drain that finds it.
  while (!head_.compare_exchange_weak(pushed->next, pushed, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

std::vector<PendingExtent> GiveBackQueue::drain(OwnerId owner) {
  // The whole stack at once, so there is no ABA: nodes are only ever popped by whoever took all of them.
  Node* node = head_.exchange(nullptr, std::memory_order_acquire);
  std::vector<PendingExtent> extents;
  while (node != nullptr) {
    const std::unique_ptr<Node> taken(std::exchange(node, node->next));
    if (taken->extent.owner == owner) extents.push_back(taken->extent);
  }
  return extents;
}

namespace {

// Smaller ones fault little, and their extents hardly ever come again.
constexpr std::uint64_t worth_keeping_nbytes = 64u << 10;

std::byte* fresh_mapping(const PayloadSegment& payload, const PayloadSegment::FileRange& range, std::uint64_t asked_nbytes) {
  const int fd = payload.fd();
  mapping_budget::acquire();
  void* base = huge_pages::map_file(range.nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, range.offset);
  if (base != MAP_FAILED) return static_cast<std::byte*>(base);
  const int error = errno;
  mapping_budget::release();
  const std::string what = "cannot map an allocation of " + std::to_string(asked_nbytes) + " bytes";
  if (error == ENOMEM) throw MappingLimitError(what);
  throw Error::system(what, error);
}

std::byte* map_range(const PayloadSegment& payload, const PayloadSegment::FileRange& range, std::uint64_t asked_nbytes) {
  if (std::byte* kept = payload.kept_shared().take(range.offset, range.nbytes)) return kept;
  try {
    return fresh_mapping(payload, range, asked_nbytes);
  } catch (const MappingLimitError&) {
    if (payload.kept_shared().count() == 0 && payload.kept().count() == 0) throw;
  }
  // What is in use comes before what is kept.
  payload.kept_shared().clear();
  payload.kept().clear();
  return fresh_mapping(payload, range, asked_nbytes);
}

}  // namespace

// Co-owned by every copy of a tensor() pointer.
struct ProducerMapping::Tensor {
  std::shared_ptr<ProducerMapping> mapping;
  explicit Tensor(std::shared_ptr<ProducerMapping> mapping) : mapping(std::move(mapping)) {}
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() { mapping->tensor_died(); }
};

ProducerMapping::ProducerMapping(std::shared_ptr<const PayloadSegment> payload, const PendingExtent& extent,
                                 std::shared_ptr<GiveBackQueue> give_back)
    : payload_(std::move(payload)),
      extent_(extent),
      give_back_(std::move(give_back)),
      node_(std::make_unique<GiveBackQueue::Node>(GiveBackQueue::Node{extent, nullptr})) {
  const PayloadSegment::FileRange range = payload_->huge_pages_around(extent.span);
  base_ = map_range(*payload_, range, extent.span.nbytes);
  offset_ = range.offset;
  mapped_nbytes_ = range.nbytes;
  lead_nbytes_ = range.lead_nbytes;
}

std::shared_ptr<ProducerMapping> ProducerMapping::map(std::shared_ptr<const PayloadSegment> payload, const PendingExtent& extent,
                                                      std::shared_ptr<GiveBackQueue> give_back) {
  const OperationGuard guard;
  return std::shared_ptr<ProducerMapping>(new ProducerMapping(std::move(payload), extent, std::move(give_back)), GuardedDelete{});
}

ProducerMapping::~ProducerMapping() {
  let_go();
  if (phase_ == Phase::open) give_back_->push(std::move(node_));  // dropped without a word: nobody else would
}

std::shared_ptr<std::byte> ProducerMapping::tensor(std::uint64_t offset, std::uint64_t nbytes) {
  const OperationGuard guard;
  if (offset > extent_.span.nbytes || nbytes > extent_.span.nbytes - offset) {
    throw Error(ErrorCode::invalid, "bytes [" + std::to_string(offset) + ", + " + std::to_string(nbytes) +
                                        ") are not in an allocation of " + std::to_string(extent_.span.nbytes) + " bytes");
  }
  {
    const std::lock_guard lock(mutex_);
    if (phase_ != Phase::open) {
      throw Error(ErrorCode::invalid, phase_ == Phase::inherited ? "this allocation belongs to the process that forked this one"
                                                                 : "this allocation was committed or aborted");
    }
    ++alive_;
  }
  std::shared_ptr<Tensor> counted;
  try {
    counted = std::shared_ptr<Tensor>(new Tensor(shared_from_this()), GuardedDelete{});
  } catch (...) {
    tensor_died();
    throw;
  }
  return {std::move(counted), base_ + lead_nbytes_ + offset};
}

std::uint32_t ProducerMapping::tensors_alive() const noexcept {
  const OperationGuard guard;
  const std::lock_guard lock(mutex_);
  return alive_;
}

void ProducerMapping::seal(BlockLease lease) {
  const OperationGuard guard;
  TQ_PAUSE("producer.before_seal");
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::sealed) return;
  if (phase_ != Phase::open) throw Error(ErrorCode::invalid, "this allocation was aborted, or belongs to the parent process");
  if (alive_ == 0) {
    let_go();
  } else {
    if (!make_private()) {
      const int error = errno;
      throw Error::system("cannot cut " + std::to_string(alive_) + " tensors of an allocation of " +
                              std::to_string(extent_.span.nbytes) + " bytes off the store: drop them before commit",
                          error);
    }
    lease_ = std::move(lease);
  }
  phase_ = Phase::sealed;
  TQ_PAUSE("producer.sealed");
}

bool ProducerMapping::abandon() noexcept {
  const OperationGuard guard;
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::open && phase_ != Phase::sealed) return false;
  phase_ = Phase::abandoned;
  if (alive_ > 0) return false;
  let_go();
  return true;
}

void ProducerMapping::tensor_died() noexcept {
  TQ_PAUSE_NOTHROW("producer.tensor_died");
  BlockLease released;  // dropped after the lock: it may be the last user of the lease file
  const std::lock_guard lock(mutex_);
  if (--alive_ > 0 || phase_ == Phase::open) return;
  let_go();
  released = std::move(lease_);
  if (phase_ == Phase::abandoned) give_back_->push(std::move(node_));
}

void ProducerMapping::let_go() noexcept {
  if (base_ == nullptr || !shared_ || mapped_nbytes_ < worth_keeping_nbytes) return unmap();
  payload_->kept_shared().keep({std::exchange(base_, nullptr), offset_, mapped_nbytes_});
}

void ProducerMapping::unmap() noexcept {
  if (base_ == nullptr) return;
  mapping_budget::unmap(base_, mapped_nbytes_);
  base_ = nullptr;
}

bool ProducerMapping::make_private() noexcept {
  constexpr int flags = MAP_PRIVATE | MAP_NORESERVE;
  const auto offset = static_cast<off_t>(offset_);
  const int fd = payload_->fd_or_none();
  shared_ = false;  // from here on it is not to be kept, whatever becomes of it
  // A trial elsewhere first: where private mappings are charged, MAP_FIXED may remove the old mapping and then fail.
  void* trial = ::mmap(nullptr, mapped_nbytes_, PROT_READ | PROT_WRITE, flags, fd, offset);
  if (trial == MAP_FAILED) return false;
  ::munmap(trial, mapped_nbytes_);
  if (::mmap(base_, mapped_nbytes_, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, offset) != MAP_FAILED) return true;
  const int error = errno;
  // Memory went between trial and remap. The tensors get their shared pages again: not charged, so this works.
  ::mmap(base_, mapped_nbytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, offset);
  errno = error;
  return false;
}

void ProducerMapping::after_fork_in_child() noexcept {
  const bool readable = phase_ != Phase::sealed || lease_.valid();
  if (phase_ != Phase::sealed) phase_ = Phase::inherited;
  if (base_ == nullptr) return;
  if (alive_ == 0) {
    unmap();  // not kept: a fork is no time to grow a list
  } else if (!readable || (phase_ == Phase::inherited && !make_private())) {
    ::mmap(base_, mapped_nbytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  }
}

}  // namespace tq
