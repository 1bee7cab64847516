// The whole index against itself, in one read transaction: for tests, and for whoever doubts a session (`Store.check`).
//
// Spans of blocks, pending, retired and free ones tile the reserved part without a hole or an overlap, every slot has one
// user, live counts are the cells that runs name, keys and rows name each other, every counter is the sum it stands for.
#pragma once

#include "core/index/env.hpp"

namespace tq::index {

// Error(corrupt) that says what contradicts what. `strong_hash` false: keys were hashed with a narrowed hash (a test's), which
// is then not followed.
void check_index(Env& env, bool strong_hash = true);

}  // namespace tq::index
