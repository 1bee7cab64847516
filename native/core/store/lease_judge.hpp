// Claims as a session's processes see them: dead is whoever's lease file is unlocked (lease_directory.hpp).
#pragma once

#include "core/claim_clock.hpp"
#include "core/claim_judge.hpp"
#include "core/memory/lease_directory.hpp"

namespace tq {

class LeaseJudge final : public ClaimJudge {
 public:
  explicit LeaseJudge(const LeaseDirectory& leases) : leases_(leases) {}
  std::int64_t now_ns() const override { return claim_clock_ns(); }
  bool is_dead(OwnerId owner) const override { return leases_.is_dead(owner); }

 private:
  const LeaseDirectory& leases_;
};

}  // namespace tq
