#include "core/index/tag_map.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include "core/index/bytes.hpp"

namespace tq {
namespace {

using Entries = std::vector<std::pair<std::string_view, std::string_view>>;

// Bounded and checked: the bytes come from a caller (`code` invalid) or from the index (corrupt).
Entries parse(std::string_view map, ErrorCode code) {
  Entries entries;
  if (map.empty()) return entries;
  std::size_t at = 0;
  const auto malformed = [code](const char* why) { throw Error(code, std::string("a tag map is malformed: ") + why); };
  const auto number = [&]() -> std::size_t {
    if (map.size() - at < 4) malformed("it ends within a number");
    const auto value = index::load<std::uint32_t>(map.data() + at);
    at += 4;
    return value;
  };
  const auto bytes = [&](std::size_t nbytes) {
    if (map.size() - at < nbytes) malformed("it ends within an entry");
    const std::string_view value = map.substr(at, nbytes);
    at += nbytes;
    return value;
  };
  const std::size_t n = number();
  if (n > (map.size() - at) / 8) malformed("it holds fewer entries than it says");
  entries.reserve(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::string_view name = bytes(number());
    if (i > 0 && !(entries.back().first < name)) malformed("its names are not in order, or one stands twice");
    entries.emplace_back(name, bytes(number()));
  }
  if (at != map.size()) malformed("bytes follow its last entry");
  return entries;
}

}  // namespace

std::optional<std::string_view> find_tag(std::string_view map, std::string_view name, ErrorCode malformed) {
  for (const auto& [entry, value] : parse(map, malformed)) {
    if (entry == name) return value;
  }
  return std::nullopt;
}

std::string merge_tag_maps(std::string_view base, std::string_view update) {
  const Entries old = parse(base, ErrorCode::corrupt);
  const Entries fresh = parse(update, ErrorCode::invalid);
  if (old.empty()) return fresh.empty() ? std::string() : std::string(update);
  if (fresh.empty()) return std::string(base);
  Entries merged;
  merged.reserve(old.size() + fresh.size());
  auto a = old.begin();
  auto b = fresh.begin();
  while (a != old.end() || b != fresh.end()) {
    if (b == fresh.end() || (a != old.end() && a->first < b->first)) {
      merged.push_back(*a++);
    } else {
      if (a != old.end() && a->first == b->first) ++a;  // replaced
      merged.push_back(*b++);
    }
  }
  index::Writer out;
  out.number(static_cast<std::uint32_t>(merged.size()));
  for (const auto& [name, value] : merged) {
    out.number(static_cast<std::uint32_t>(name.size())).bytes(name);
    out.number(static_cast<std::uint32_t>(value.size())).bytes(value);
  }
  return std::string(out.view());
}

}  // namespace tq
