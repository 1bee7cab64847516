// What decides that a claim is over: the time, and whether its process is alive. The index knows neither.
#pragma once

#include <cstdint>

#include "core/types.hpp"

namespace tq {

class ClaimJudge {
 public:
  virtual ~ClaimJudge() = default;
  // On CLOCK_BOOTTIME: a machine that slept must not give rows of a silent claimant one more night.
  virtual std::int64_t now_ns() const = 0;
  // Once true, true for ever: owner ids are not reused.
  virtual bool is_dead(OwnerId owner) const = 0;
};

}  // namespace tq
