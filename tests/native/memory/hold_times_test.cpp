#include "core/memory/hold_times.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>

#include "core/memory/write_gate.hpp"
#include "memory/support.hpp"

namespace tq_test::hold_times_test {

TEST_CASE("classes of hold times follow one another and are at most an eighth wide") {
  std::uint64_t previous = 0;
  for (unsigned index = 0; index < tq::HoldTimes::class_count; ++index) {
    const std::uint64_t longest = tq::HoldTimes::longest_of(index);
    CHECK(tq::HoldTimes::class_of(longest) == index);
    if (index > 0) {
      CHECK(longest > previous);
      CHECK(tq::HoldTimes::class_of(previous + 1) == index);
      if (index >= 8) CHECK(static_cast<double>(longest) <= 1.125 * static_cast<double>(previous + 1));
    }
    previous = longest;
  }
  CHECK(previous == std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("holds are counted by time, and cleared") {
  tq::HoldTimes times;
  CHECK(times.counts().empty());
  for (int i = 0; i < 3; ++i) times.add(10'000);
  times.add(2'000'000);
  const auto counts = times.counts();
  REQUIRE(counts.size() == 2);
  CHECK(counts[0].first >= 10'000);
  CHECK(counts[0].first <= 11'250);
  CHECK(counts[0].second == 3);
  CHECK(counts[1].second == 1);
  times.clear();
  CHECK(times.counts().empty());
}

TEST_CASE("the write gate counts how long it was held") {
  Session session;
  tq::RobustWriteGate gate(session.control);
  for (int i = 0; i < 5; ++i) {
    const tq::GateHold held(gate);
  }
  {
    const tq::GateHold held(gate);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::uint64_t holds = 0;
  for (const auto& [nanoseconds, count] : gate.hold_times().counts()) holds += count;
  CHECK(holds == 6);
  CHECK(gate.hold_times().counts().back().first >= 20'000'000);
  gate.after_fork_in_child();
  CHECK(gate.hold_times().counts().empty());
}

TEST_CASE("growing excludes growing, and no write transaction waits for it") {
  Session session;
  const tq::GrowthLock held(*session.control);
  CHECK(in_child([&] {
          tq::RobustWriteGate gate(session.control, 5.0);
          const tq::GateHold entered(gate);
          return 0;
        }) == 0);
  CHECK(in_child([&] {
          try {
            const tq::GrowthLock second(*session.control, 0.05);
            return 1;
          } catch (const tq::Error& error) {
            return error.code == tq::ErrorCode::timeout ? 0 : 2;
          }
        }) == 0);
}

}  // namespace tq_test::hold_times_test
