#include "core/store/room.hpp"

#include "store/support.hpp"

using namespace tq_test;

TEST_CASE("the segment is backed in steps, and what was freed is used before what is fresh") {
  const SessionDirectory session(16 * mib, 2 * mib);
  const auto store = session.attach();
  const auto first = put(*store, "p", fresh(1), 1, mib).indexes;
  CHECK(figure(*store, "reserved_bytes") == 2 * mib);
  put(*store, "p", fresh(1), 2, mib);
  auto view = store->resolve("p", by_index(first), std::nullopt, true);
  store->clear_rows("p", by_index(first));  // leased, hence only listed
  view.reset();
  put(*store, "p", fresh(1), 3, mib);  // finds it by reclaiming
  CHECK(figure(*store, "reserved_bytes") == 2 * mib);
  put(*store, "p", fresh(1), 4, 5 * mib);
  CHECK(figure(*store, "reserved_bytes") == 7 * mib);
}

TEST_CASE("no room: at once where it can never fit, after the deadline where it might, and with the sizes") {
  const SessionDirectory session(4 * mib, mib);
  const auto store = session.attach();
  CHECK(code_of([&] { store->reserve(4 * mib + 1, std::nullopt, nullptr); }) == tq::ErrorCode::storage_full);
  put(*store, "p", fresh(1), 1, 4 * mib);
  int slices = 0;
  try {
    store->reserve(4096, 0.25, [&] { ++slices; });
    FAIL("there was room");
  } catch (const tq::Error& error) {
    CHECK(error.code == tq::ErrorCode::storage_full);
    CHECK(error.figures.size() == 7);
  }
  CHECK(slices >= 2);
  CHECK_THROWS_AS(store->reserve(4096, std::nullopt, [] { throw std::runtime_error("interrupted"); }), std::runtime_error);
  CHECK(figure(*store, "pending_bytes") == 0);
}

TEST_CASE("writers that wait for room get it when it is freed") {
  const SessionDirectory session(8 * mib, mib);
  const auto store = session.attach();
  const auto cycle = [&](const std::string& partition) {
    return [&, partition] {
      for (int number = 0; number < 20; ++number) {
        const auto indexes = put(*store, partition, fresh(1), 1, 5 * mib, std::nullopt).indexes;  // two do not fit
        store->clear_rows(partition, by_index(indexes));
      }
    };
  };
  run_together({cycle("a"), cycle("b"), cycle("c")});
  CHECK(figure(*store, "free_bytes") == 8 * mib);
}

TEST_CASE("trimmed space is backed again before it is used, also beside writers") {
  const SessionDirectory session(8 * mib, 4 * mib);
  const auto store = session.attach();
  CHECK(store->populate(4 * mib) >= 4 * mib);
  const auto kept = put(*store, "p", fresh(1), 6, mib).indexes;
  CHECK(store->trim() > 0);
  CHECK(store->trim() > 0);  // holes are punched again; the sum is not remembered
  CHECK(value_of(*store->resolve("p", by_index(kept), std::nullopt, true), 1, mib) == 6);
  const auto write = [&] {
    for (int number = 0; number < 30; ++number) {
      const auto indexes = put(*store, "q", fresh(1), number, mib, std::nullopt).indexes;
      CHECK(value_of(*store->resolve("q", by_index(indexes), std::nullopt, true), 1, mib) == number);
      store->clear_rows("q", by_index(indexes));
    }
  };
  const auto trim = [&] {
    for (int number = 0; number < 20; ++number) store->trim();
  };
  run_together({write, write, trim});
  CHECK(value_of(*store->resolve("p", by_index(kept), std::nullopt, true), 1, mib) == 6);
  CHECK(figure(*store, "free_bytes") == 7 * mib);
}
