// A row's tags on disk: a sequence of entries (name, opaque value), sorted by name, so that tags merge inside a
// transaction without Python.  u32 n | n x { u32 name_len | name | u32 value_len | value }, little-endian.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tq {

// Entries of `update` replace entries of `base` with the same name; others stay. "" is the empty map.
// Throws Error(invalid) on a malformed map.
std::string merge_tag_maps(std::string_view base, std::string_view update);
// The value of one entry. Throws Error(invalid) on a malformed map.
std::optional<std::string_view> find_tag(std::string_view map, std::string_view name);

}  // namespace tq
