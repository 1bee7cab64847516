#include "core/memory/counters.hpp"

#include <unistd.h>

#include <map>
#include <numeric>

namespace tq {

using layout::CounterStripe;
using layout::MethodLayout;

namespace {

constexpr std::string_view overflow_name = "(other)";
enum : std::uint32_t { entry_free = 0, entry_taken = 1, entry_named = 2 };

// At most `method_name_bytes` of it, no character cut in two.
std::string_view cut(std::string_view name) noexcept {
  if (name.size() <= layout::method_name_bytes) return name;
  std::size_t end = layout::method_name_bytes;
  while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xc0) == 0x80) --end;
  return name.substr(0, end);
}

std::string_view name_of(const MethodLayout& entry) noexcept {
  return {entry.name, std::min<std::size_t>(entry.name_nbytes, layout::method_name_bytes)};
}

// The entry of that name among [0, count), made when there is room for it; null when all are taken.
// Two processes may meet at a name that neither finds: one takes an entry, and the other, which cannot wait for a name that
// may never be written (its taker may be killed), takes the next. A name then has two entries, and totals add them up.
MethodLayout* find_entry(MethodLayout* methods, std::string_view name, std::size_t count) noexcept {
  std::size_t at = layout::fnv1a(name) % count;
  for (std::size_t looked = 0; looked < count; ++looked, at = at + 1 == count ? 0 : at + 1) {
    MethodLayout& entry = methods[at];
    // Acquire: pairs with the release below, the name stands.
    std::uint32_t state = entry.state.load(std::memory_order_acquire);
    if (state == entry_free &&
        entry.state.compare_exchange_strong(state, entry_taken, std::memory_order_acq_rel, std::memory_order_acquire)) {
      entry.name_nbytes = static_cast<std::uint32_t>(name.size());
      std::copy(name.begin(), name.end(), entry.name);
      entry.state.store(entry_named, std::memory_order_release);
      return &entry;
    }
    if (state == entry_named && name_of(entry) == name) return &entry;
  }
  return nullptr;
}

}  // namespace

std::uint64_t LatencyTotal::count() const noexcept { return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}); }

Counters::Counters(CounterStripe* stripes, MethodLayout* methods) noexcept : stripes_(stripes), methods_(methods) {
  after_fork_in_child();
}

void Counters::after_fork_in_child() noexcept {
  mine_ = stripes_ + static_cast<std::size_t>(::getpid()) % layout::stripe_count;
}

void Counters::took(Latency latency, std::chrono::steady_clock::duration time) noexcept {
  const auto signed_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  const auto nanoseconds = static_cast<std::uint64_t>(std::max<decltype(signed_ns)>(0, signed_ns));
  layout::LatencyLayout& cells = mine_->latencies[static_cast<std::size_t>(latency)];
  cells.sum_ns.fetch_add(nanoseconds, std::memory_order_relaxed);
  cells.counts[LatencyClasses::class_of(nanoseconds)].fetch_add(1, std::memory_order_relaxed);
}

void Counters::add_method(std::string_view name,
                          const std::array<std::uint64_t, layout::method_figure_count>& figures) noexcept {
  MethodLayout* entry = find_entry(methods_, cut(name), layout::method_count - 1);
  if (entry == nullptr) entry = find_entry(methods_ + layout::method_count - 1, overflow_name, 1);  // kept for this name
  if (entry == nullptr) return;  // its taker was killed before it wrote the name: not counted
  for (std::size_t i = 0; i < figures.size(); ++i) {
    if (figures[i] != 0) entry->figures[i].fetch_add(figures[i], std::memory_order_relaxed);
  }
}

std::uint64_t Counters::total(Counter counter) const noexcept {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < layout::stripe_count; ++i) {
    sum += stripes_[i].counters[static_cast<std::size_t>(counter)].load(std::memory_order_relaxed);
  }
  return sum;
}

LatencyTotal Counters::total(Latency latency) const noexcept {
  LatencyTotal total;
  for (std::size_t i = 0; i < layout::stripe_count; ++i) {
    const layout::LatencyLayout& cells = stripes_[i].latencies[static_cast<std::size_t>(latency)];
    total.sum_ns += cells.sum_ns.load(std::memory_order_relaxed);
    for (unsigned c = 0; c < LatencyClasses::count; ++c) total.counts[c] += cells.counts[c].load(std::memory_order_relaxed);
  }
  return total;
}

std::vector<MethodTotal> Counters::methods() const {
  std::map<std::string, MethodTotal> by_name;
  for (std::size_t i = 0; i < layout::method_count; ++i) {
    const MethodLayout& entry = methods_[i];
    if (entry.state.load(std::memory_order_acquire) != entry_named) continue;
    const std::string name(name_of(entry));
    MethodTotal& total = by_name[name];
    total.name = name;
    for (std::size_t f = 0; f < total.figures.size(); ++f) {
      total.figures[f] += entry.figures[f].load(std::memory_order_relaxed);
    }
  }
  std::vector<MethodTotal> all;
  all.reserve(by_name.size());
  for (auto& [name, total] : by_name) all.push_back(std::move(total));
  return all;
}

}  // namespace tq
