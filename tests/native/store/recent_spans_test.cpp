#include "core/store/recent_spans.hpp"

#include "store/support.hpp"

using namespace tq_test;

TEST_CASE("places of the size asked for, latest first; the oldest is forgotten") {
  tq::RecentSpans recent;
  CHECK(recent.offsets(100).empty());
  CHECK(recent.offsets(0).empty());
  recent.add(100, 1);
  recent.add(200, 2);
  recent.add(100, 3);
  CHECK(recent.offsets(100) == std::vector<std::uint64_t>{3, 1});
  recent.add(100, 1);  // once more: not a second place
  CHECK(recent.offsets(100) == std::vector<std::uint64_t>{1, 3});
  for (std::uint64_t i = 0; i < 7; ++i) recent.add(300, i);
  CHECK(recent.offsets(100) == std::vector<std::uint64_t>{1});
  recent.add(300, 7);
  CHECK(recent.offsets(100).empty());
  CHECK(recent.offsets(300).front() == 7);
}

TEST_CASE("a process puts where it put before, also where a lower place is free") {
  const SessionDirectory session(64 * mib, 64 * mib);
  const auto a = session.attach();
  const auto b = session.attach();
  const auto place = [](tq::Store& store) { return store.reserve(mib, 0.0, nullptr)->reservation().span.offset; };  // given back
  auto kept = a->reserve(mib, 0.0, nullptr);
  const std::uint64_t of_b = place(*b);
  const std::uint64_t of_a = kept->reservation().span.offset;
  REQUIRE(of_a < of_b);
  kept.reset();
  CHECK(place(*b) == of_b);
  CHECK(place(*a) == of_a);
  const auto held = b->reserve(mib, 0.0, nullptr);
  CHECK(held->reservation().span.offset == of_b);
  CHECK(place(*b) != of_b);  // taken: anywhere else
}
