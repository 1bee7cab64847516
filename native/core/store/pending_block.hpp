// A pending extent that this process fills and then publishes or gives back.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/index/index.hpp"
#include "core/memory/producer_mapping.hpp"
#include "core/store/attachment.hpp"
#include "core/types.hpp"

namespace tq {

// Bytes to copy: `nbytes` from `source` to `offset` of the extent.
struct Write {
  std::uint64_t offset = 0;
  std::uint64_t source = 0;  // address
  std::uint64_t nbytes = 0;
};

// Dropped while pending, it queues its extent for the next call: a destructor opens no transaction.
// Made before a fork, it belongs to the parent: the child can neither fill nor publish it, and drops it without effect.
class PendingBlock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  // `asked`: when the call that found the room began.
  PendingBlock(std::shared_ptr<Attachment> attachment, const Reservation& reservation, OwnerId owner, TimePoint asked);
  ~PendingBlock();
  PendingBlock(const PendingBlock&) = delete;
  PendingBlock& operator=(const PendingBlock&) = delete;

  const Reservation& reservation() const noexcept { return reservation_; }
  std::uint64_t nbytes() const noexcept { return reservation_.span.nbytes; }

  void copy_in(const std::vector<Write>& writes);
  // On the process's shared mapping. The bytes are the store's: the caller drops the pointer before it publishes.
  std::shared_ptr<std::byte> writable(std::uint64_t offset, std::uint64_t nbytes);

  void map_for_producer();
  std::shared_ptr<std::byte> producer_tensor(std::uint64_t offset, std::uint64_t nbytes);
  // [offset, nbytes) each; gives the extent its producer mapping.
  std::vector<std::shared_ptr<std::byte>> producer_tensors(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges);
  std::uint32_t producer_tensors_alive() const;
  // Where the time of a put begins: `asked`, or, as what a producer computes in place is not the put's time, nullopt.
  std::optional<TimePoint> asked() const;

  // Now, or when the last producer tensor dies. Again: nothing.
  void abandon();

  // Publication, by the store: locked from begin to the end of the returned object, so that nothing fills or drops the
  // block meanwhile. Cuts the producer's tensors off and marks the block's word live.
  class Publication {
   public:
    explicit Publication(PendingBlock& block);  // Error(invalid): not pending, of another store or of a parent process
    ~Publication();                             // not committed: the word is free again and the block pending
    Publication(const Publication&) = delete;
    Publication& operator=(const Publication&) = delete;
    void committed() noexcept;   // the block is the index's now
    void given_back() noexcept;  // the index abandoned the reservation by itself

   private:
    PendingBlock& block_;
    std::unique_lock<std::mutex> lock_;
    bool done_ = false;
  };
  bool belongs_to(const Attachment& attachment) const noexcept { return attachment_.get() == &attachment; }

 private:
  enum class Phase { pending, published, given_back };
  void require_pending(const char* what) const;
  void write_to_spill_file(const std::vector<Write>& writes);
  void map_producer();  // under mutex_
  void check_range(std::uint64_t offset, std::uint64_t nbytes, const char* what) const;
  bool give_back() noexcept;  // queues the extent, or leaves that to the last tensor; false: nothing to do

  const std::shared_ptr<Attachment> attachment_;
  const std::shared_ptr<GiveBack> give_back_;
  const std::shared_ptr<PayloadSegment> payload_;  // also after the store was closed
  const Reservation reservation_;
  const OwnerId owner_;
  const TimePoint asked_;
  std::unique_ptr<GiveBackQueue::Node> node_;  // made beforehand: giving back must not fail
  mutable std::mutex mutex_;
  Phase phase_ = Phase::pending;
  std::shared_ptr<ProducerMapping> producer_;
};

}  // namespace tq
