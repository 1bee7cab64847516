// Numbers for schemas: in one process equal numbers mean equal schemas. A get compares numbers, where it would have to fetch the
// strings of ten thousand cells from memory.
#pragma once

#include <cstdint>
#include <string_view>

namespace tq::index {

// Never 0. A schema that was not seen for long may get another number: the table is bounded, a number keeps its meaning for ever.
std::uint32_t schema_id(std::string_view schema);

}  // namespace tq::index
