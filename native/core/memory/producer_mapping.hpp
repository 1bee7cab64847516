// The writable mapping behind `alloc`: shared, of its own, so that it can be cut off from the store in place.
//
//   map -> tensors ... -> seal (before the commit) or abandon
//
// seal with tensors alive replaces the mapping by MAP_FIXED|MAP_PRIVATE at the same address: atomic for the kernel, so a write
// that races with it lands either in the store before publication or in a private page; nothing the producer still holds can
// reach the store afterwards. The tensors have become views and co-own the block's lease. seal without tensors cuts nothing
// off, since nothing holds an address of it: the mapping goes to the next allocation of the same extent (see below).
// abandon with tensors alive leaves them writable; the extent is given back when the last one dies, through a queue that
// the deleter pushes to without lock or transaction and the next call or tick drains.
//
// A mapping that is shared to its end is kept (PayloadSegment::kept_shared) rather than unmapped: the loop that allocates W at
// every step would map 67 MB, fault its page tables in and take them down again each time (munmap alone 80 us of cold page
// structures). Why that is safe: addresses of it exist only in tensors, every tensor counts, and the count was 0 under mutex_
// after the phase had changed, so that no further one can be made (tensor() refuses). What happened before through the last
// tensor is ordered before the publication: its death took mutex_, as seal does. A kept mapping is then no more than the
// process's own mapping of the whole segment, which every process has: neither is written through without a reservation. It
// needs no lease and no care at reuse, trim or a move to huge pages, as it always shows the file. One that was ever
// private is unmapped: its written pages would hide the file from the next producer's readers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/memory/fork_registry.hpp"
#include "core/memory/lease.hpp"
#include "core/memory/payload_segment.hpp"

namespace tq {

// What `index.abandon` needs; the index's own Reservation and its owner, without knowing the index.
struct PendingExtent {
  Span span;
  BlockRef block;
  OwnerId owner = 0;
};

// Extents that nobody uses any more and whose pending record is still in the index. Many pushers, any thread, lock-free: a
// stack of nodes made beforehand, so that a deleter allocates nothing.
class GiveBackQueue {
 public:
  struct Node {
    PendingExtent extent;
    Node* next = nullptr;
  };
  GiveBackQueue() = default;
  ~GiveBackQueue();
  GiveBackQueue(const GiveBackQueue&) = delete;
  GiveBackQueue& operator=(const GiveBackQueue&) = delete;

  void push(std::unique_ptr<Node> node) noexcept;  // release: what the pusher did to the extent is ordered before
  // Everything pushed so far that belongs to `owner`; what a forked child inherited from its parent is dropped (the parent
  // gives it back).
  std::vector<PendingExtent> drain(OwnerId owner);
  bool empty() const noexcept { return head_.load(std::memory_order_relaxed) == nullptr; }

 private:
  std::atomic<Node*> head_{nullptr};
};

class ProducerMapping final : public ForkParticipant, public std::enable_shared_from_this<ProducerMapping> {
 public:
  static std::shared_ptr<ProducerMapping> map(std::shared_ptr<const PayloadSegment> payload, const PendingExtent& extent,
                                              std::shared_ptr<GiveBackQueue> give_back);
  ~ProducerMapping() override;

  // Bytes [offset, offset + nbytes) of the extent, writable. The pointer is the tensor: it counts as alive until its last
  // copy dies. Error(invalid) outside the extent, after seal or abandon, and in a forked child.
  std::shared_ptr<std::byte> tensor(std::uint64_t offset, std::uint64_t nbytes);
  std::uint32_t tensors_alive() const noexcept;

  // Before the commit, inside an operation. `lease` claims the block about to be published (lease_own_block). On failure
  // (Error(system): no memory for the private mapping) nothing changed: abandon, and do not publish. Idempotent.
  void seal(BlockLease lease);
  // True: no tensor is alive, the mapping is gone and the caller gives the extent back itself. False: it will be queued.
  bool abandon() noexcept;

  // The child's copy becomes private: it must never write to the store. Its unwritten pages show whatever the parent does.
  void after_fork_in_child() noexcept override;

 private:
  enum class Phase { open, sealed, abandoned, inherited };
  ProducerMapping(std::shared_ptr<const PayloadSegment> payload, const PendingExtent& extent,
                  std::shared_ptr<GiveBackQueue> give_back);
  void tensor_died() noexcept;
  void let_go() noexcept;         // under mutex_ or from the destructor: kept while shared, else unmapped
  void unmap() noexcept;
  bool make_private() noexcept;   // under mutex_ or in a child

  struct Tensor;
  const std::shared_ptr<const PayloadSegment> payload_;
  const PendingExtent extent_;
  const std::shared_ptr<GiveBackQueue> give_back_;
  std::unique_ptr<GiveBackQueue::Node> node_;
  // Held for a count or one mmap, never across anything that can wait; free at every fork (operations and deleters excluded).
  mutable std::mutex mutex_;
  Phase phase_ = Phase::open;
  std::uint32_t alive_ = 0;
  BlockLease lease_;
  std::byte* base_ = nullptr;
  std::uint64_t offset_ = 0;  // in the file
  std::uint64_t mapped_nbytes_ = 0;
  std::uint64_t lead_nbytes_ = 0;
  bool shared_ = true;  // never was private
};

}  // namespace tq
