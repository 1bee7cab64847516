// Whether tables that came from outside can be a session.
#pragma once

#include <vector>

#include "core/index/index.hpp"
#include "core/index/saved_session.hpp"

namespace tq::index {

// Throws Error(invalid) saying what does not fit: numbers that name nothing, rows that overlap or do not exist, cells outside
// of their block, a field that stands twice on a row, fields that end outside of their reservation, names that are none.
void check_saved(const SavedSession& saved, const std::vector<Reservation>& reservations);

}  // namespace tq::index
