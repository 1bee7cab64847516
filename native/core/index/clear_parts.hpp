// Parts of a clear that others need who remove rows.
#pragma once

#include <span>
#include <vector>

#include "core/index/names.hpp"
#include "core/index/runs.hpp"
#include "core/index/txn.hpp"

namespace tq::index {

// The parts of `wanted` (segments, ascending) that exist and are not doomed.
std::vector<Segment> living_rows(const Txn& txn, const Partition& partition, std::span<const Segment> wanted);

// The front of `segments` whose records number about `units`, and whether that is all. At least one run's part.
std::vector<Segment> affordable(const Txn& txn, const Partition& partition, std::span<const Segment> segments, std::size_t units,
                                bool* all);

}  // namespace tq::index
