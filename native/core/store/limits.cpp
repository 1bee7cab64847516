// Limits of partitions: one transaction of the index each, then the wake.
#include "core/store/store.hpp"

namespace tq {

namespace {

template <class Change>
auto changed(Attachment& attachment, Index& index, Change&& change) {
  // Before and after the commit: the first so that nobody stays at 0 should we die, the second so that what was seen in between
  // is looked at again. Ordered with the transaction by its lock.
  attachment.control->limit_epoch().fetch_add(1, std::memory_order_relaxed);
  const bool done = change();
  attachment.control->limit_epoch().fetch_add(1, std::memory_order_relaxed);
  wake_partitions(*attachment.control, index.partitions());
  return done;
}

}  // namespace

void Store::set_limits(const std::string& pattern, const LimitRule& rule) {
  const Call call(*attachment_);
  changed(*attachment_, call.index(), [&] {
    call.index().set_limits(pattern, rule);
    return true;
  });
}

bool Store::remove_limits(const std::string& pattern) {
  const Call call(*attachment_);
  return changed(*attachment_, call.index(), [&] { return call.index().remove_limits(pattern); });
}

std::vector<std::pair<std::string, LimitRule>> Store::limit_rules() {
  const Call call(*attachment_);
  return call.index().limit_rules();
}

LimitReport Store::limit_report(const std::string& partition) {
  const Call call(*attachment_);
  return call.index().limit_report(partition);
}

std::vector<Index::HeldBlock> Store::held_by(const Resolved& resolved) {
  const Call call(*attachment_);
  std::vector<BlockRef> refs;
  for (const BlockInfo& block : resolved.resolution().blocks) refs.push_back(block.ref);
  return call.index().held_by(refs);
}

bool Store::set_weight_version(const std::string& partition, std::int64_t version) {
  const Call call(*attachment_);
  const bool done = call.index().set_weight_version(partition, version);
  if (done) wake_partition(*attachment_->control, partition);
  return done;
}

void Store::look_at_limits(const std::string& partition, const RowSelector& rows, std::uint64_t nbytes,
                           const std::vector<std::string>& tags) {
  const Call call(*attachment_);
  call.index().look_at_limits(partition, rows, nbytes, tags);
}

std::uint32_t Store::limit_epoch() const noexcept { return attachment_->control->limit_epoch().load(std::memory_order_relaxed); }

}  // namespace tq
