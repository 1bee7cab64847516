// What all processes of a session did: how often, how much, how long. Counted by each where it happens, summed by who asks.
//
// The counters lie in the control segment, hence belong to the session and not to the process that added: what a process
// counted is still there when it was killed, and nothing has to be folded, reaped or handed on. To keep processes off each
// other's cache lines there are 64 stripes of one page each; a process adds to the one that its pid falls on, and a total is
// the sum over all. Two processes on one stripe, and the threads of one process, are kept right by the adds being atomic.
//
// Ordering: everything here is relaxed. Nothing is decided by a counter, no bytes are published by one, and no two of them
// have to agree: the count of a latency is not kept beside its classes but is their sum. What relaxed atomics do promise is
// enough: an add is indivisible, so none is lost, and the values that a reader sees of one counter only ever grow (coherence),
// so a total that is read twice never falls. A reader may see one counter of a call and not yet another. An add happens when
// the call is done: one that is killed between its commit and its add is not counted.
// The only edge is a method's name: written before its state is set to 2 with release, read after that was loaded with acquire.
//
// Cost: an uncontended add takes about 5 ns, a clock reading 20 to 25 ns.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory/layout.hpp"
#include "core/memory/log_classes.hpp"

namespace tq {

// Numbers in shared memory: new ones at the end.
enum class Latency : std::size_t {
  put,        // from asking for room (the attempt that got it) until visible; written in place: the publication
  get,        // from the look-up until the caller has its tensors; waits for rows are not in it
  data_wait,  // waits for rows or fields
  room_wait,  // of puts that found the store full
  lock_wait,  // for the index's write lock
  lock_hold,  // of it
};
enum class Counter : std::size_t {
  put_rows,
  put_bytes,
  get_rows,
  get_viewed_bytes,
  get_copied_bytes,
  data_timeouts,
  room_timeouts,
  reaped_clients,
  coalesced_blocks,  // made, each out of several
  coalesced_bytes,
  spilled_blocks,  // moved to the spill file
  spilled_bytes,
  limit_waits,     // puts that waited at a limit of their partition
  limit_refusals,  // and that failed there
  shed_rows,       // that made room for others there, or were too old to be put
  compacted_blocks,  // made by compaction, out of what still lived in others
  compacted_bytes,
  pulled_bytes,  // payload that came from other nodes
  served_bytes,  // and that went to them
};
enum class MethodFigure : std::size_t { calls, failures, rows, get_ns, run_ns, put_ns, viewed_bytes, copied_bytes };

// The classes of a latency: two to each power of two from 512 ns to 69 s, one below, one above.
struct LatencyClasses {
  static constexpr unsigned count = layout::latency_class_count;
  static constexpr unsigned unit_bits = 9;  // 512 ns
  static constexpr unsigned class_of(std::uint64_t nanoseconds) noexcept {
    return std::min(count - 1, LogClasses<1>::class_of(nanoseconds >> unit_bits));
  }
  // The shortest time that is longer than all of the class; the last class has none.
  static constexpr std::uint64_t end_ns(unsigned index) noexcept {
    return (LogClasses<1>::largest_of(index) + 1) << unit_bits;
  }
};

struct LatencyTotal {
  std::uint64_t sum_ns = 0;
  std::array<std::uint64_t, LatencyClasses::count> counts{};
  std::uint64_t count() const noexcept;
};

struct MethodTotal {
  std::string name;  // UTF-8, cut at a character
  std::array<std::uint64_t, layout::method_figure_count> figures{};
};

class Counters {
 public:
  Counters() = default;
  Counters(layout::CounterStripe* stripes, layout::MethodLayout* methods) noexcept;

  void add(Counter counter, std::uint64_t n) noexcept {
    mine_->counters[static_cast<std::size_t>(counter)].fetch_add(n, std::memory_order_relaxed);
  }
  void took(Latency latency, std::chrono::steady_clock::duration time) noexcept;
  // Adds to the figures of the method of that name. Where all entries are taken, to those of the name "(other)".
  void add_method(std::string_view name, const std::array<std::uint64_t, layout::method_figure_count>& figures) noexcept;

  // By all processes since the session was made.
  std::uint64_t total(Counter counter) const noexcept;
  LatencyTotal total(Latency latency) const noexcept;
  std::vector<MethodTotal> methods() const;  // by name, each once

  // A child counts on a stripe of its own. No other thread runs.
  void after_fork_in_child() noexcept;

 private:
  layout::CounterStripe* stripes_ = nullptr;
  layout::CounterStripe* mine_ = nullptr;
  layout::MethodLayout* methods_ = nullptr;
};

}  // namespace tq
