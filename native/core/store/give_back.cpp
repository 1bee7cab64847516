#include "core/store/give_back.hpp"

#include <unistd.h>

#include <cerrno>
#include <exception>
#include <memory>
#include <string>

#include "core/memory/retire.hpp"
#include "core/memory/wake.hpp"
#include "core/patience.hpp"
#include "core/pause.hpp"

namespace tq {

namespace {

bool has_lease_file(const Attachment& attachment, OwnerId owner) {
  const std::string path = attachment.lease_path + "/" + std::to_string(owner) + ".lease";
  return ::access(path.c_str(), F_OK) == 0 || errno != ENOENT;
}

}  // namespace

void drain_give_back(Attachment& attachment, Index& index) {
  GiveBackQueue& queue = attachment.give_back->queue;
  if (queue.empty()) return;
  const std::vector<PendingExtent> extents = queue.drain(attachment.leases->owner());
  for (std::size_t i = 0; i < extents.size(); ++i) {
    try {
      index.abandon({extents[i].span, extents[i].block}, extents[i].owner);
    } catch (...) {
      // A write gate that stays shut is this call's error, but the extents are not lost with it.
      for (; i < extents.size(); ++i) queue.push(std::make_unique<GiveBackQueue::Node>(GiveBackQueue::Node{extents[i]}));
      throw;
    }
    attachment.table.set_free(extents[i].block);
  }
  if (!extents.empty()) bump_word(room_word(*attachment.control));
}

void drain_if_free(Attachment& attachment, Index& index) {
  constexpr double moment_s = 0.1;
  const Patience patience(moment_s);
  try {
    drain_give_back(attachment, index);
  } catch (const Error& error) {
    if (error.code != ErrorCode::timeout && error.code != ErrorCode::index_full) throw;
  }
}

std::uint64_t retire_blocks(Attachment& attachment, Index& index, const std::vector<BlockRef>& retired) {
  if (retired.empty()) return 0;
  TQ_PAUSE("retire.after_commit");
  const std::vector<BlockRef> unleased = unleased_of_retired(attachment.table, attachment.lease_directory, retired);
  TQ_PAUSE("retire.after_word");
  if (unleased.empty()) return 0;
  const std::uint64_t freed = index.free_retired(unleased);
  // After the commit only: a word set free while its block is still listed would never be found unleased again. From here on
  // the slot may already belong to another incarnation, which set_free does not touch.
  for (const BlockRef block : unleased) attachment.table.set_free(block);
  if (freed > 0) bump_word(room_word(*attachment.control));
  return freed;
}

void retire_after_commit(Attachment& attachment, Index& index, const std::vector<BlockRef>& retired) noexcept {
  try {
    retire_blocks(attachment, index, retired);
  } catch (const std::exception&) {
    // Said in the header: they stay listed.
  }
}

std::vector<std::pair<OwnerId, std::int64_t>> reap_dead(Attachment& attachment, Index& index) {
  std::vector<std::pair<OwnerId, std::int64_t>> reaped;
  bool room = false;
  const auto abandon = [&](OwnerId owner) {
    for (const Reservation& pending : index.abandon_owner(owner)) {
      attachment.table.set_free(pending.block);  // it may have died between the word and the commit
      room = true;
    }
  };
  for (const ClientInfo& client : attachment.lease_directory.dead()) {
    abandon(client.owner);
    TQ_PAUSE("reap.before_remove");
    attachment.lease_directory.remove(client.owner);  // last: if we die before, the next reaper finds it again
    reaped.emplace_back(client.owner, client.pid);
    attachment.control->counters().add(Counter::reaped_clients, 1);
  }
  // A store closed while tensors of an allocation were alive leaves its record behind: its lease file went with the last
  // of them, after which nothing of that process opened a transaction. A file is there before its owner's first record.
  const std::vector<std::pair<OwnerId, std::uint64_t>> owners = index.pending_by_owner();
  if (!owners.empty() && has_lease_file(attachment, attachment.leases->owner())) {  // else somebody removes files by hand
    for (const auto& [owner, nbytes] : owners) {
      if (!has_lease_file(attachment, owner)) abandon(owner);
    }
  }
  if (room) bump_word(room_word(*attachment.control));
  return reaped;
}

std::uint64_t reclaim_all(Attachment& attachment, Index& index) {
  const IndexStats before = index.stats();
  drain_give_back(attachment, index);
  reap_dead(attachment, index);
  std::uint64_t freed = retire_blocks(attachment, index, index.finish_clears());
  freed += retire_blocks(attachment, index, index.retired());
  const IndexStats after = index.stats();
  // Pending extents are counted by difference: other processes reserve and publish meanwhile, hence the guard.
  if (before.pending_bytes > after.pending_bytes) freed += before.pending_bytes - after.pending_bytes;
  return freed;
}

}  // namespace tq
