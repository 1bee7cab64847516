// Claims and numbered requests: one transaction of the index each, then the wake.
#include "core/patience.hpp"
#include "core/pause.hpp"
#include "core/store/store.hpp"

namespace tq {

std::optional<ClaimGrant> Store::claim(const TaskChoice& choice, std::int64_t lease_ns) {
  const Call call(*attachment_);
  attachment_->claimed.store(true, std::memory_order_relaxed);
  const std::optional<ClaimGrant> grant = call.index().claim(choice, attachment_->leases->owner(), lease_ns);
  // Fewer rows are ready, which nobody waits for; but the task's version is another one.
  if (grant) wake_partition(*attachment_->control, choice.partition);
  return grant;
}

void Store::finish_claim(const std::string& partition, const std::string& task, std::uint64_t fencing, bool consumed) {
  const Call call(*attachment_);
  call.index().finish_claim(partition, task, fencing, consumed);
  TQ_PAUSE("claim.before_wake");
  wake_partition(*attachment_->control, partition);
}

std::int64_t Store::extend_claim(const std::string& partition, const std::string& task, std::uint64_t fencing,
                                 std::int64_t lease_ns) {
  const Call call(*attachment_);
  attachment_->claimed.store(true, std::memory_order_relaxed);
  return call.index().extend_claim(partition, task, fencing, attachment_->leases->owner(), lease_ns);
}

std::size_t Store::drop_claims() {
  const Patience patience(5.0);  // housekeeping, see report.cpp
  const Call call(*attachment_);
  const std::vector<std::string> partitions = call.index().drop_claims();
  wake_partitions(*attachment_->control, partitions);
  return partitions.size();
}

std::shared_ptr<index::ArmedRequest> Store::request(const RequestId& id, std::string reply) {
  const Call call(*attachment_);
  return call.index().request(id, std::move(reply));
}

std::optional<RequestRecord> Store::find_request(const RequestId& id) {
  const Call call(*attachment_);
  return call.index().find_request(id);
}

std::size_t Store::drop_requests() {
  const Patience patience(5.0);
  const Call call(*attachment_);
  return call.index().drop_requests();
}

}  // namespace tq
