#include "core/store/pending_block.hpp"

#include <string>

#include "core/memory/copy.hpp"
#include "core/memory/lease.hpp"
#include "core/pause.hpp"
#include "core/memory/spill_file.hpp"
#include "core/store/give_back.hpp"
#include "core/store/spill.hpp"

namespace tq {

PendingBlock::PendingBlock(std::shared_ptr<Attachment> attachment, const Reservation& reservation, OwnerId owner,
                           TimePoint asked)
    : attachment_(std::move(attachment)),
      give_back_(attachment_->give_back),
      payload_(attachment_->payload),
      reservation_(reservation),
      owner_(owner),
      asked_(asked),
      node_(new GiveBackQueue::Node{{reservation.span, reservation.block, owner}}) {}

PendingBlock::~PendingBlock() {
  const OperationGuard operation;  // not a deleter: giving a mapping up is an operation, which none may enter from inside one
  give_back();
}

void PendingBlock::require_pending(const char* what) const {
  if (phase_ == Phase::published) throw Error(ErrorCode::invalid, std::string(what) + ": the block is already published");
  if (phase_ == Phase::given_back) throw Error(ErrorCode::invalid, std::string(what) + ": the block was given back");
  if (give_back_->leases->owner() != owner_) {
    throw Error(ErrorCode::invalid, std::string(what) + ": the block was reserved before fork and belongs to the parent");
  }
}

void PendingBlock::check_range(std::uint64_t offset, std::uint64_t nbytes, const char* what) const {
  const std::uint64_t size = reservation_.span.nbytes;
  if (offset > size || nbytes > size - offset) {
    throw Error(ErrorCode::invalid, std::string(what) + ": bytes [" + std::to_string(offset) + ", +" +
                                        std::to_string(nbytes) + ") lie outside the extent of " + std::to_string(size));
  }
}

void PendingBlock::copy_in(const std::vector<Write>& writes) {
  const OperationGuard operation;
  {
    const std::lock_guard lock(mutex_);
    require_pending("copy_in");
    for (const Write& write : writes) check_range(write.offset, write.nbytes, "copy_in");
  }
  if (reservation_.span.spilled()) return write_to_spill_file(writes);
  std::byte* base = payload_->writable(reservation_.span);
  std::vector<CopyRange> ranges;
  ranges.reserve(writes.size());
  for (const Write& write : writes) {
    if (write.nbytes == 0) continue;
    ranges.push_back({base + write.offset, reinterpret_cast<const std::byte*>(write.source), write.nbytes});
  }
  copy_ranges(ranges);
  payload_->note_touched(reservation_.span);
  TQ_PAUSE("put.after_copy");
}

void PendingBlock::write_to_spill_file(const std::vector<Write>& writes) {
  for (const Write& write : writes) {
    if (write.nbytes == 0) continue;
    const Span part{reservation_.span.offset + write.offset, write.nbytes};
    if (payload_->spill()->write(part, reinterpret_cast<const std::byte*>(write.source))) continue;
    throw Error(ErrorCode::storage_full, "the file system of the " + payload_->spill()->name() + " is full");
  }
  TQ_PAUSE("put.after_copy");
}

std::shared_ptr<std::byte> PendingBlock::writable(std::uint64_t offset, std::uint64_t nbytes) {
  const OperationGuard operation;
  const std::lock_guard lock(mutex_);
  require_pending("writable");
  check_range(offset, nbytes, "writable");
  payload_->note_touched(reservation_.span);
  return std::shared_ptr<std::byte>(payload_, payload_->writable(reservation_.span) + offset);
}

void PendingBlock::map_for_producer() {
  const OperationGuard operation;
  const std::lock_guard lock(mutex_);
  require_pending("map_for_producer");
  map_producer();
}

void PendingBlock::map_producer() {
  if (producer_) return;
  producer_ = ProducerMapping::map(payload_, {reservation_.span, reservation_.block, owner_},
                                   std::shared_ptr<GiveBackQueue>(give_back_, &give_back_->queue));
}

std::shared_ptr<std::byte> PendingBlock::producer_tensor(std::uint64_t offset, std::uint64_t nbytes) {
  const OperationGuard operation;
  const std::lock_guard lock(mutex_);
  require_pending("producer_tensor");
  check_range(offset, nbytes, "producer_tensor");
  if (!producer_) throw Error(ErrorCode::invalid, "producer_tensor: call map_for_producer first");
  payload_->note_touched(reservation_.span);
  return producer_->tensor(offset, nbytes);
}

std::vector<std::shared_ptr<std::byte>> PendingBlock::producer_tensors(
    const std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges) {
  const OperationGuard operation;
  const std::lock_guard lock(mutex_);
  require_pending("producer_tensors");
  for (const auto& [offset, nbytes] : ranges) check_range(offset, nbytes, "producer_tensors");
  map_producer();
  payload_->note_touched(reservation_.span);
  std::vector<std::shared_ptr<std::byte>> tensors;
  tensors.reserve(ranges.size());
  for (const auto& [offset, nbytes] : ranges) tensors.push_back(producer_->tensor(offset, nbytes));
  return tensors;
}

std::uint32_t PendingBlock::producer_tensors_alive() const {
  const OperationGuard operation;
  const std::lock_guard lock(mutex_);
  return producer_ ? producer_->tensors_alive() : 0;
}

std::optional<PendingBlock::TimePoint> PendingBlock::asked() const {
  const std::lock_guard lock(mutex_);
  return producer_ ? std::nullopt : std::optional(asked_);
}

void PendingBlock::abandon() {
  const OperationGuard operation;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::published) throw Error(ErrorCode::invalid, "abandon: the block is already published");
    if (!give_back()) return;
  }
  if (attachment_->closed()) return;  // whoever reaps this process finds the record
  const Call call(*attachment_, Needs::attachment);
  drain_if_free(*attachment_, call.index());
}

bool PendingBlock::give_back() noexcept {
  if (phase_ != Phase::pending) return false;
  phase_ = Phase::given_back;
  const bool unused = !producer_ || producer_->abandon();
  producer_.reset();
  if (unused) give_back_->queue.push(std::move(node_));
  return true;
}

PendingBlock::Publication::Publication(PendingBlock& block) : block_(block), lock_(block.mutex_) {
  block.require_pending("publish");
  Attachment& attachment = *block.attachment_;
  const BlockRef ref = block.reservation_.block;
  // The lease first: from the moment the block is published the tensors read it through their private pages.
  if (block.producer_) block.producer_->seal(lease_own_block(attachment.leases, ref));
  attachment.table.set_live(ref);
  if (block.payload_->spill() != nullptr) attachment.table.note_use(ref, use_time(std::chrono::steady_clock::now()));
}

PendingBlock::Publication::~Publication() {
  if (!done_) block_.attachment_->table.set_free(block_.reservation_.block);
}

void PendingBlock::Publication::committed() noexcept {
  done_ = true;
  block_.phase_ = Phase::published;
  block_.producer_.reset();
}

void PendingBlock::Publication::given_back() noexcept {
  done_ = true;
  block_.attachment_->table.set_free(block_.reservation_.block);
  block_.phase_ = Phase::given_back;
  block_.producer_.reset();
}

}  // namespace tq
