// What a put says about its block, checked before it is published: readers trust it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/types.hpp"

namespace tq {

// Error(invalid): a field without a name or named twice, bytes outside the block, rows that do not fit the bytes.
void check_layouts(const std::vector<FieldLayout>& fields, std::uint64_t block_nbytes, std::int64_t rows);

}  // namespace tq
