// Reserve, publish, move: the writing half of the store.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/memory/wake.hpp"
#include "core/pause.hpp"
#include "core/store/give_back.hpp"
#include "core/store/layout_check.hpp"
#include "core/store/room.hpp"
#include "core/store/spill.hpp"
#include "core/store/store.hpp"

namespace tq {

namespace {

using Clock = std::chrono::steady_clock;

std::int64_t row_count(const RowSelector& rows) {
  switch (rows.by) {
    case RowsBy::index:
      return static_cast<std::int64_t>(rows.indexes.size());
    case RowsBy::key:
      return static_cast<std::int64_t>(rows.keys.size());
    case RowsBy::fresh:
      return rows.count;
  }
  return 0;
}

void count_put(Counters& counters, const PublishRequest& request, const PublishResult& result, Clock::duration time) {
  std::uint64_t nbytes = 0;
  for (const FieldLayout& field : request.fields) nbytes += field.data_nbytes;
  counters.took(Latency::put, time);
  counters.add(Counter::put_rows, result.indexes.size());
  if (nbytes > 0) counters.add(Counter::put_bytes, nbytes);
}

void require_own(const PendingBlock& block, const Attachment& attachment) {
  if (!block.belongs_to(attachment)) throw Error(ErrorCode::invalid, "the reservation was made by another store");
}

}  // namespace

std::shared_ptr<PendingBlock> Store::reserve(std::uint64_t nbytes, std::optional<double> timeout_s,
                                             const Interrupt& interrupt, bool ahead) {
  Attachment& attachment = *attachment_;
  const Clock::time_point start = Clock::now();
  // A try that found no room is followed by a sleep, which is no part of the put's time.
  Clock::time_point asked = start;
  for (;;) {
    std::uint32_t seen = 0;
    double left_s = wait_slice_s;
    {
      const Call call(attachment);
      drain_give_back(attachment, call.index());
      seen = read_word(room_word(*attachment.control));
      const OwnerId owner = attachment.leases->owner();
      const auto find = ahead ? find_room_ahead : find_room;
      if (const auto found = find(attachment, call.index(), nbytes, owner)) {
        return std::make_shared<PendingBlock>(attachment_, *found, owner, asked);
      }
      if (timeout_s) {
        left_s = *timeout_s - std::chrono::duration<double>(Clock::now() - start).count();
        if (left_s <= 0) throw no_room(attachment, call.index(), nbytes);
      }
    }
    // Leases end without a wake (a deleter makes no noise), hence the slices. Asleep and interruptible outside the call.
    tq::wait_word(room_word(*attachment.control), seen, std::min(left_s, wait_slice_s));
    if (interrupt) interrupt();
    asked = Clock::now();
  }
}

std::shared_ptr<PendingBlock> Store::reserve_headroom(std::uint64_t nbytes) {
  Attachment& attachment = *attachment_;
  const Call call(attachment);
  drain_give_back(attachment, call.index());
  const OwnerId owner = attachment.leases->owner();
  const auto found = find_headroom(attachment, call.index(), nbytes, owner);
  if (!found) throw no_room(attachment, call.index(), nbytes);
  return std::make_shared<PendingBlock>(attachment_, *found, owner, Clock::now());
}

std::shared_ptr<PendingBlock> Store::reserve_spilled(std::uint64_t nbytes) {
  Attachment& attachment = *attachment_;
  const Call call(attachment);
  drain_give_back(attachment, call.index());
  const OwnerId owner = attachment.leases->owner();
  const auto found = find_spill_room(attachment, call.index(), nbytes, owner);
  if (!found) throw no_room(attachment, call.index(), nbytes);
  return std::make_shared<PendingBlock>(attachment_, *found, owner, Clock::now());
}

PublishResult Store::publish(PublishRequest& request, PendingBlock* block) {
  Attachment& attachment = *attachment_;
  const Call call(attachment);
  Index& index = call.index();
  // Where there is nothing to copy, and of what a producer computed in place, the publication is all that is the put's.
  const std::optional<Clock::time_point> room_asked = block == nullptr ? std::nullopt : block->asked();
  const Clock::time_point asked = room_asked ? *room_asked : Clock::now();
  drain_give_back(attachment, index);
  request.owner = attachment.leases->owner();
  PublishResult result;
  if (block != nullptr) {
    require_own(*block, attachment);
    check_layouts(request.fields, block->nbytes(), row_count(request.rows));
    request.reservation = block->reservation();
    PendingBlock::Publication publication(*block);
    TQ_PAUSE("put.before_publish");
    // The bytes and the word before the index entry: set_live stored with release, and readers look at the word again.
    result = index.publish(request);
    publication.committed();
  } else {
    if (!request.fields.empty()) throw Error(ErrorCode::invalid, "publish: fields without a reservation");
    TQ_PAUSE("put.before_publish");
    result = index.publish(request);
  }
  TQ_PAUSE("put.after_commit_before_wake");
  wake_partition(*attachment.control, request.partition);
  if (result.shed_rows > 0) attachment.control->counters().add(Counter::shed_rows, result.shed_rows);
  count_put(attachment.control->counters(), request, result, Clock::now() - asked);
  retire_after_commit(attachment, index, result.retired);
  return result;
}

std::int64_t Store::move(const Resolved& source, PendingBlock& block, const std::vector<FieldLayout>& fields, bool compaction) {
  Attachment& attachment = *attachment_;
  const Call call(attachment);
  Index& index = call.index();
  drain_give_back(attachment, index);
  require_own(block, attachment);
  // Should every row have changed meanwhile, the index takes the extent back at once, and no lease protects a producer.
  if (block.producer_tensors_alive() > 0) throw Error(ErrorCode::invalid, "move: tensors of the reservation are alive");
  check_layouts(fields, block.nbytes(), static_cast<std::int64_t>(source.resolution().indexes.size()));
  Index::MoveResult result;
  {
    PendingBlock::Publication publication(block);
    result = index.publish_moved(source.resolution(), block.reservation(), attachment.leases->owner(), fields);
    if (result.moved > 0) {
      publication.committed();
      Counters& counters = attachment.control->counters();
      counters.add(compaction ? Counter::compacted_blocks : Counter::coalesced_blocks, 1);
      counters.add(compaction ? Counter::compacted_bytes : Counter::coalesced_bytes, block.nbytes());
    } else {
      publication.given_back();
    }
  }
  if (result.moved == 0) bump_word(room_word(*attachment.control));
  retire_after_commit(attachment, index, result.retired);
  return result.moved;
}

}  // namespace tq
