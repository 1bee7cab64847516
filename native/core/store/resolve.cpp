// The get protocol: resolve, lease, look again.
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "core/memory/lease.hpp"
#include "core/pause.hpp"
#include "core/store/spill.hpp"
#include "core/store/store.hpp"

namespace tq {

namespace {

// For the choice of what to spill; sessions that cannot are not charged for it.
void note_uses(Attachment& attachment, const Resolution& resolution, std::chrono::steady_clock::time_point now) noexcept {
  if (attachment.payload->spill() == nullptr) return;
  const std::uint32_t when = use_time(now);
  for (const BlockInfo& block : resolution.blocks) attachment.table.note_use(block.ref, when);
}

std::vector<BlockRef> refs_of(const Resolution& resolution) {
  std::vector<BlockRef> refs;
  refs.reserve(resolution.blocks.size());
  for (const BlockInfo& block : resolution.blocks) refs.push_back(block.ref);
  return refs;
}

}  // namespace

std::shared_ptr<Resolved> Store::resolve(const std::string& partition, const RowSelector& rows,
                                         const std::optional<std::vector<std::string>>& fields, bool lease) {
  Attachment& attachment = *attachment_;
  const auto asked = std::chrono::steady_clock::now();
  Counters& counters = attachment.control->counters();
  const Call call(attachment);
  if (!lease) {
    return std::make_shared<Resolved>(call.index().resolve(partition, rows, fields), attachment.payload,
                                      std::vector<BlockLease>(), counters, asked);
  }
  attachment.leases->check_descriptor();
  for (int round = 0; round < snapshot_rounds; ++round) {
    Resolution resolution = call.index().resolve(partition, rows, fields);
    TQ_PAUSE("get.after_resolve");
    std::optional<std::vector<BlockLease>> leases =
        lease_blocks(attachment.table, attachment.leases, refs_of(resolution));
    if (!leases) continue;  // a block was retired since the snapshot: a later snapshot does not name it
    TQ_PAUSE("get.after_lease");
    note_uses(attachment, resolution, asked);
    return std::make_shared<Resolved>(std::move(resolution), attachment.payload, std::move(*leases),
                                      counters, asked);
  }
  // Writers keep retiring what we find. Inside the write transaction none can commit, so this round cannot fail.
  std::vector<BlockLease> leases;
  Resolution resolution = call.index().resolve(partition, rows, fields, true, [&](const Resolution& found) {
    leases.clear();
    leases.reserve(found.blocks.size());
    for (const BlockInfo& block : found.blocks) leases.push_back(lease_own_block(attachment.leases, block.ref));
  });
  TQ_PAUSE("get.after_lease");
  note_uses(attachment, resolution, asked);
  return std::make_shared<Resolved>(std::move(resolution), attachment.payload, std::move(leases), counters, asked);
}

}  // namespace tq
