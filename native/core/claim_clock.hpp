// The clock of claims: CLOCK_BOOTTIME, which every process of the machine reads alike and which goes on while it sleeps.
#pragma once

#include <cstdint>

namespace tq {

std::int64_t claim_clock_ns() noexcept;

// Tests let leases run out without waiting: from now on the clock of this process is ahead by so much. Error(invalid) in a
// build without pause points.
void set_claim_clock_ahead(std::int64_t ahead_ns);

}  // namespace tq
