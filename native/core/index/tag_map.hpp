// A row's tags on disk: a sequence of entries (name, opaque value), sorted by name, so that tags merge inside a
// transaction without Python.  u32 n | n x { u32 name_len | name | u32 value_len | value }, little-endian.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace tq {

// Entries of `update` replace entries of `base` with the same name; others stay. "" is the empty map.
// Throws Error(invalid) on a malformed update, Error(corrupt) on a malformed base: that one is the index's.
std::string merge_tag_maps(std::string_view base, std::string_view update);
// The value of one entry. Throws Error(malformed) on a malformed map.
std::optional<std::string_view> find_tag(std::string_view map, std::string_view name, ErrorCode malformed);

}  // namespace tq
