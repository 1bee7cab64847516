#include "core/index/limit_rules.hpp"

#include <algorithm>

#include "core/index/names.hpp"

namespace tq::index {
namespace {

using Rules = std::vector<std::pair<std::string, LimitRule>>;

constexpr std::size_t max_consumers = 64;

WhenExceeded parse_when(std::uint8_t value) {
  if (value > static_cast<std::uint8_t>(WhenExceeded::raise)) corrupt("an unknown way to meet a limit");
  return static_cast<WhenExceeded>(value);
}

void encode_names(const std::vector<std::string>& names, Writer& out) {
  out.number(static_cast<std::uint16_t>(names.size()));
  for (const std::string& name : names) out.number(static_cast<std::uint16_t>(name.size())).bytes(name);
}

std::vector<std::string> parse_names(Reader& in) {
  const auto count = in.number<std::uint16_t>();
  if (count > max_consumers) corrupt("too many consumers of a limit");
  std::vector<std::string> names;
  for (unsigned i = 0; i < count; ++i) {
    const std::string& name = names.emplace_back(in.bytes(in.number<std::uint16_t>()));
    if (name.empty() || name.size() > max_name_nbytes) corrupt("a consumer of a limit without a name that it could have");
  }
  return names;
}

// 0: nothing said, 1: no cap, 2: a cap, which follows.
void encode_cap(const LimitRule::Cap& cap, Writer& out) {
  out.number(static_cast<std::uint8_t>(!cap ? 0 : !*cap ? 1 : 2));
  if (cap && *cap) out.number(**cap);
}

LimitRule::Cap parse_cap(Reader& in) {
  switch (in.number<std::uint8_t>()) {
    case 0:
      return std::nullopt;
    case 1:
      return LimitRule::Cap(std::in_place, std::nullopt);
    case 2:
      return LimitRule::Cap(std::in_place, in.number<std::uint64_t>());
    default:
      corrupt("an unknown kind of cap");
  }
}

std::string encode_rule(const LimitRule& rule) {
  Writer out;
  encode_cap(rule.max_bytes, out);
  encode_cap(rule.max_unconsumed_rows, out);
  encode_cap(rule.max_version_lag, out);
  out.number(static_cast<std::uint8_t>(rule.when_exceeded ? 1 + static_cast<unsigned>(*rule.when_exceeded) : 0));
  out.number(static_cast<std::uint8_t>(rule.consumers ? 1 : 0));
  if (rule.consumers) encode_names(*rule.consumers, out);
  return std::string(out.view());
}

LimitRule parse_rule(std::string_view bytes) {
  Reader in(bytes);
  LimitRule rule;
  rule.max_bytes = parse_cap(in);
  rule.max_unconsumed_rows = parse_cap(in);
  rule.max_version_lag = parse_cap(in);
  if (const auto when = in.number<std::uint8_t>(); when != 0) rule.when_exceeded = parse_when(static_cast<std::uint8_t>(when - 1));
  if (in.number<std::uint8_t>() != 0) rule.consumers = parse_names(in);
  in.expect_end();
  return rule;
}

void overlay(LimitRule& below, const LimitRule& above) {
  if (above.max_bytes) below.max_bytes = above.max_bytes;
  if (above.max_unconsumed_rows) below.max_unconsumed_rows = above.max_unconsumed_rows;
  if (above.max_version_lag) below.max_version_lag = above.max_version_lag;
  if (above.consumers) below.consumers = above.consumers;
  if (above.when_exceeded) below.when_exceeded = above.when_exceeded;
}

void check_rule(const std::string& pattern, const LimitRule& rule) {
  check_name(pattern, "partition");
  if (!rule.consumers) return;
  if (rule.consumers->size() > max_consumers) {
    throw Error(ErrorCode::invalid, std::to_string(rule.consumers->size()) + " consumers of a limit; at most " +
                                        std::to_string(max_consumers) + " can be named");
  }
  for (const std::string& task : *rule.consumers) check_name(task, "task");
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;  // the last one met, and where the name stood then
  std::size_t mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

Rules read_rules(const Txn& txn) {
  Rules rules;
  Cursor cursor(txn, Table::limit_rules);
  for (bool found = cursor.seek(Key(Table::limit_rules)); found; found = cursor.next()) {
    rules.emplace_back(std::string(cursor.tail()), parse_rule(cursor.value()));
  }
  return rules;
}

void merge_rule(WriteTxn& txn, const std::string& pattern, const LimitRule& rule) {
  check_rule(pattern, rule);
  const Key key = Key(Table::limit_rules).name(pattern);
  const auto stored = txn.get(key);
  LimitRule merged = stored ? parse_rule(*stored) : LimitRule{};
  overlay(merged, rule);
  txn.put(key, encode_rule(merged));
}

bool erase_rule(WriteTxn& txn, const std::string& pattern) {
  check_name(pattern, "partition");
  return txn.erase_if_present(Key(Table::limit_rules).name(pattern));
}

PartitionLimits limits_for(const Rules& rules, std::string_view name) {
  std::vector<const Rules::value_type*> found;
  for (const auto& rule : rules) {
    if (matches(rule.first, name)) found.push_back(&rule);
  }
  // Rules come in the order of their bytes, and the sort keeps it among equals.
  std::stable_sort(found.begin(), found.end(), [&](const auto* a, const auto* b) {
    const bool a_exact = a->first == name;
    const bool b_exact = b->first == name;
    return a_exact != b_exact ? b_exact : a->first.size() < b->first.size();
  });
  LimitRule all;
  for (const auto* rule : found) overlay(all, rule->second);
  PartitionLimits limits;
  limits.max_bytes = all.max_bytes.value_or(std::nullopt);
  limits.max_unconsumed_rows = all.max_unconsumed_rows.value_or(std::nullopt);
  limits.max_version_lag = all.max_version_lag.value_or(std::nullopt);
  limits.consumers = all.consumers.value_or(std::vector<std::string>{});
  limits.when_exceeded = all.when_exceeded.value_or(WhenExceeded::wait);
  return limits;
}

void encode_limits(const PartitionLimits& limits, Writer& out) {
  const std::optional<std::uint64_t> caps[] = {limits.max_bytes, limits.max_unconsumed_rows, limits.max_version_lag};
  unsigned there = 0;
  for (unsigned i = 0; i < 3; ++i) there |= caps[i] ? 1u << i : 0u;
  out.number(static_cast<std::uint8_t>(there));
  for (const auto& cap : caps) {
    if (cap) out.number(*cap);
  }
  out.number(static_cast<std::uint8_t>(limits.when_exceeded));
  encode_names(limits.consumers, out);
}

PartitionLimits parse_limits(Reader& in) {
  PartitionLimits limits;
  const auto there = in.number<std::uint8_t>();
  if (there > 7) corrupt("an unknown kind of limit");
  std::optional<std::uint64_t>* caps[] = {&limits.max_bytes, &limits.max_unconsumed_rows, &limits.max_version_lag};
  for (unsigned i = 0; i < 3; ++i) {
    if ((there >> i & 1) != 0) *caps[i] = in.number<std::uint64_t>();
  }
  limits.when_exceeded = parse_when(in.number<std::uint8_t>());
  limits.consumers = parse_names(in);
  return limits;
}

}  // namespace tq::index
