#include "core/index/schema_ids.hpp"

#include <mutex>
#include <string>
#include <unordered_map>

namespace tq::index {
namespace {

constexpr std::uint32_t max_schemas = 1u << 15;

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};

// Held inside operations only, so free at every fork. Never destroyed: sessions may be module globals.
struct Numbers {
  std::mutex mutex;
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> known;
  std::uint32_t last = 0;
};

Numbers& numbers() {
  static auto* instance = new Numbers();
  return *instance;
}

}  // namespace

std::uint32_t schema_id(std::string_view schema) {
  Numbers& all = numbers();
  const std::lock_guard lock(all.mutex);
  const auto found = all.known.find(schema);
  if (found != all.known.end()) return found->second;
  if (all.known.size() >= max_schemas) all.known.clear();
  all.known.emplace(schema, all.last + 1);
  return ++all.last;
}

}  // namespace tq::index
