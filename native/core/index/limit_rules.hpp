// The rules of the session, by name or pattern, and what follows from them for a partition.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/index/partition_limits.hpp"
#include "core/index/txn.hpp"

namespace tq::index {

// `*` in a pattern stands for any bytes, also none; everything else for itself.
bool matches(std::string_view pattern, std::string_view name);

std::vector<std::pair<std::string, LimitRule>> read_rules(const Txn& txn);
// What `rule` says replaces what the rule of that name said; the rest of it stays.
void merge_rule(WriteTxn& txn, const std::string& pattern, const LimitRule& rule);

// Removes the rule of that name; false: there was none.
bool erase_rule(WriteTxn& txn, const std::string& pattern);

// Each setting from the most specific rule that says something about it: the one of exactly that name, then the longest
// pattern that matches, the last in the order of bytes among equals.
PartitionLimits limits_for(const std::vector<std::pair<std::string, LimitRule>>& rules, std::string_view name);

// u8 which of the three caps there are | the caps, 8 bytes each | u8 when | u16 n | n x { u16 length | name }
void encode_limits(const PartitionLimits& limits, Writer& out);
PartitionLimits parse_limits(Reader& in);

}  // namespace tq::index
