// Limits of partitions: one transaction of the index each, then the wake.
#include "core/store/store.hpp"

namespace tq {

void Store::set_limits(const std::string& pattern, const LimitRule& rule) {
  const Call call(*attachment_);
  // Before and after the commit: the first so that nobody stays at 0 should we die, the second so that what was seen in between
  // is looked at again. Ordered with the transaction by its lock.
  attachment_->control->limit_epoch().fetch_add(1, std::memory_order_relaxed);
  call.index().set_limits(pattern, rule);
  attachment_->control->limit_epoch().fetch_add(1, std::memory_order_relaxed);
  wake_partitions(*attachment_->control, call.index().partitions());
}

std::vector<std::pair<std::string, LimitRule>> Store::limit_rules() {
  const Call call(*attachment_);
  return call.index().limit_rules();
}

LimitReport Store::limit_report(const std::string& partition) {
  const Call call(*attachment_);
  return call.index().limit_report(partition);
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
