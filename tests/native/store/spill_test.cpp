#include "core/store/spill.hpp"

#include <unistd.h>

#include <atomic>

#include "store/support.hpp"

using namespace tq_test;

namespace {

// Room for sixteen blocks of a MiB in memory, and for 32 on disk.
SessionDirectory spilling() { return SessionDirectory(16 * mib, 4 * mib, 32 * mib); }

void require_settled(tq::Store& store) {
  store.reclaim();
  store.check();
  CHECK(figure(store, "pending_bytes") == 0);
  CHECK(figure(store, "retired_bytes") == 0);
  CHECK(figure(store, "spill_pending_bytes") == 0);
  CHECK(figure(store, "spill_retired_bytes") == 0);
  CHECK(figure(store, "used_bytes") + figure(store, "arena_bytes") + figure(store, "free_extent_bytes") == figure(store, "reserved_bytes"));
  CHECK(figure(store, "spilled_bytes") + figure(store, "spill_free_extent_bytes") == figure(store, "spill_reserved_bytes"));
}

int read_value(tq::Store& store, const std::vector<tq::RowIndex>& rows, std::uint64_t row_nbytes = mib) {
  return value_of(*store.resolve("p", by_index(rows), std::nullopt, true), rows.size(), row_nbytes);
}

}  // namespace

TEST_CASE("blocks move to the file, the coldest first, and read the same by copy, view and shared view") {
  const SessionDirectory session = spilling();
  const auto store = session.attach();
  std::vector<std::vector<tq::RowIndex>> rows;
  for (int value = 0; value < 12; ++value) rows.push_back(put(*store, "p", fresh(1), value, mib).indexes);
  ::usleep(300'000);  // two units of time of the last uses
  CHECK(read_value(*store, rows[0]) == 0);
  CHECK(store->spill(2 * mib) == 2 * mib);
  CHECK(figure(*store, "spilled_bytes") == 2 * mib);
  CHECK(figure(*store, "used_bytes") == 10 * mib);
  store->check();
  // Row 0 was read since, so 1 and 2 went.
  for (int value = 0; value < 12; ++value) {
    const auto answer = store->resolve("p", by_index(rows[static_cast<std::size_t>(value)]), std::nullopt, true);
    CHECK(answer->block(0).span.spilled() == (value == 1 || value == 2));
    CHECK(value_of(*answer, 1, mib) == value);
    for (const bool shared : {false, true}) {
      const auto view = answer->view(0, 0, mib, shared);
      const auto* bytes = static_cast<const std::byte*>(view.get());
      CHECK(static_cast<int>(bytes[0]) == value);
      CHECK(static_cast<int>(bytes[mib - 1]) == value);
    }
  }
  CHECK(store->clear_partition("p"));
  require_settled(*store);
  CHECK(figure(*store, "spilled_bytes") == 0);
  CHECK(store->trim() >= 14 * mib);  // memory and disk
}

TEST_CASE("leased blocks stay, and a view taken while its block moves keeps the old bytes") {
  const SessionDirectory session = spilling();
  const auto store = session.attach();
  const auto other = session.attach();
  const auto held_rows = put(*store, "p", fresh(1), 7, mib).indexes;
  const auto moved_rows = put(*store, "p", fresh(1), 8, mib).indexes;
  auto held = other->resolve("p", by_index(held_rows), std::nullopt, true);
  CHECK(store->spill(16 * mib) == mib);
  CHECK_FALSE(other->resolve("p", by_index(held_rows), std::nullopt, true)->block(0).span.spilled());
  held.reset();

  std::shared_ptr<tq::Resolved> taken;
  std::shared_ptr<void> view;
  tq::arm_pause("spill.after_copy", tq::PauseAction::stop);
  std::uint64_t freed = 1;
  run_together({[&] { freed = store->spill(16 * mib); },
                [&] {
                  while (!tq::is_paused("spill.after_copy")) ::usleep(1000);
                  taken = other->resolve("p", by_index(held_rows), std::nullopt, true);
                  view = taken->view(0, 0, mib, false);
                  tq::resume_pause("spill.after_copy");
                }});
  CHECK(freed == 0);  // of the memory, until the view is gone
  CHECK(figure(*store, "retired_bytes") == mib);
  CHECK(read_value(*store, held_rows) == 7);
  put(*store, "p", fresh(1), 9, 14 * mib);  // all room that is left in memory
  CHECK(static_cast<int>(*static_cast<std::byte*>(view.get())) == 7);
  view.reset();
  taken.reset();
  CHECK(store->clear_partition("p"));
  require_settled(*store);
}

TEST_CASE("a put, a clear or another mover that comes in between wins") {
  const SessionDirectory session = spilling();
  const auto store = session.attach();
  const auto other = session.attach();
  const auto overwritten = put(*store, "p", fresh(2), 1, mib).indexes;
  const auto cleared = put(*store, "p", fresh(1), 2, mib).indexes;
  const auto stays = put(*store, "p", fresh(1), 3, mib).indexes;
  tq::arm_pause("spill.after_copy", tq::PauseAction::stop);
  run_together({[&] { store->spill(16 * mib); },
                [&] {
                  while (!tq::is_paused("spill.after_copy")) ::usleep(1000);
                  put(*other, "p", by_index({overwritten[0]}), 11, mib);
                  other->clear_rows("p", by_index(cleared));
                  tq::resume_pause("spill.after_copy");
                }});
  CHECK(read_value(*store, {overwritten[0]}) == 11);
  CHECK(read_value(*store, {overwritten[1]}) == 1);
  CHECK(read_value(*store, stays) == 3);
  CHECK(store->resolve("p", by_index(cleared), std::nullopt, true)->resolution().gone.size() == 1);
  require_settled(*store);
  CHECK(figure(*store, "spilled_bytes") == 3 * mib);
  CHECK(store->clear_partition("p"));
  require_settled(*store);
  CHECK(figure(*store, "free_bytes") == 16 * mib);
}

TEST_CASE("a full disk: what fits goes, the rest stays, and nothing is lost") {
  const SessionDirectory session(16 * mib, mib, 3 * mib);
  const auto store = session.attach();
  std::vector<std::vector<tq::RowIndex>> rows;
  for (int value = 0; value < 16; ++value) rows.push_back(put(*store, "p", fresh(1), value, mib).indexes);
  CHECK(store->spill(8 * mib) == 3 * mib);
  CHECK(store->spill(8 * mib) == 0);
  require_settled(*store);
  for (int value = 0; value < 3; ++value) rows.push_back(put(*store, "p", fresh(1), 16 + value, mib).indexes);
  try {
    store->reserve(mib, 0.0, nullptr);
    FAIL("there was room");
  } catch (const tq::Error& error) {
    CHECK(error.code == tq::ErrorCode::storage_full);
    std::uint64_t spilled = 0;
    for (const auto& [name, value] : error.figures) spilled = name == "spilled" ? value : spilled;
    CHECK(spilled == 3 * mib);
  }
  for (int value = 0; value < 19; ++value) CHECK(read_value(*store, rows[static_cast<std::size_t>(value)]) == value);
  CHECK(store->clear_partition("p"));
  require_settled(*store);
  CHECK(figure(*store, "spill_free_bytes") == 3 * mib);
}

TEST_CASE("thousands of small blocks go in a few transactions") {
  const SessionDirectory session(32 * mib, 8 * mib, 32 * mib);
  const auto store = session.attach();
  for (int i = 0; i < 3000; ++i) put(*store, "p", fresh(1), i % 100, 2048);
  const std::uint64_t used = figure(*store, "used_bytes");
  CHECK(store->spill(used) == used);
  CHECK(figure(*store, "spilled_bytes") == used);
  require_settled(*store);
  for (int i = 0; i < 3000; i += 97) CHECK(read_value(*store, {i}, 2048) == i % 100);
}

TEST_CASE("a failure in the middle gives the places back") {
  const SessionDirectory session = spilling();
  const auto store = session.attach();
  const auto rows = put(*store, "p", fresh(4), 5, mib).indexes;
  for (const char* point : {"spill.before_copy", "spill.midway", "spill.after_copy", "index.spill.before_commit", "spill.after_commit"}) {
    tq::arm_pause(point, tq::PauseAction::fail);
    CHECK_THROWS_AS(store->spill(16 * mib), tq::Error);
    tq::resume_pause(point);
    CHECK(read_value(*store, rows) == 5);
    require_settled(*store);
  }
  CHECK(figure(*store, "spilled_bytes") == 4 * mib);
}

TEST_CASE("readers and writers beside a mover") {
  const SessionDirectory session(8 * mib, 2 * mib, 64 * mib);
  const auto store = session.attach();
  const auto mover = session.attach();
  const auto reader = session.attach();
  std::atomic<bool> done{false};
  const auto rows = put(*store, "p", fresh(8), 1, 65536).indexes;
  std::atomic<int> wrong{0};
  run_together({[&] {
                  for (int version = 2; version < 60; ++version) put(*store, "p", by_index(rows), version, 65536);
                  done = true;
                },
                [&] {
                  while (!done) mover->spill(mib);
                },
                [&] {
                  int last = 0;
                  while (!done) {
                    const int value = value_of(*reader->resolve("p", by_index(rows), std::nullopt, true), 8);
                    if (value < last) ++wrong;  // torn (-1), or older than what was seen before
                    last = value;
                  }
                }});
  CHECK(wrong == 0);
  CHECK(value_of(*reader->resolve("p", by_index(rows), std::nullopt, true), 8) == 59);
  require_settled(*store);
}

TEST_CASE("a file that was cut: an error, not SIGBUS") {
  const SessionDirectory session = spilling();
  const auto store = session.attach();
  const auto rows = put(*store, "p", fresh(1), 1, mib).indexes;
  const auto in_memory = put(*store, "p", fresh(1), 2, mib).indexes;
  const auto view = store->resolve("p", by_index(in_memory), std::nullopt, true);
  CHECK(store->spill(mib) == mib);
  REQUIRE(::ftruncate(session.spill_fd(), 65536) == 0);
  CHECK(code_of([&] { store->resolve("p", by_index(rows), std::nullopt, true); }) == tq::ErrorCode::corrupt);
  CHECK(code_of([&] { store->spill(mib); }) == tq::ErrorCode::corrupt);
  CHECK(code_of([&] { session.attach(); }) == tq::ErrorCode::corrupt);
  CHECK(read_value(*store, in_memory) == 2);
}

TEST_CASE("without a spill file nothing spills") {
  const SessionDirectory session;
  const auto store = session.attach();
  put(*store, "p", fresh(1), 1, mib);
  CHECK(store->spill(mib) == 0);
  CHECK(figure(*store, "spill_total_bytes") == 0);
}

TEST_CASE("room in pieces: those go that leave one piece, and of such the coldest") {
  const SessionDirectory session = spilling();
  const auto store = session.attach();
  std::vector<std::vector<tq::RowIndex>> rows;
  for (int value = 0; value < 16; ++value) rows.push_back(put(*store, "p", fresh(1), value, mib).indexes);
  for (const std::size_t gone : {1u, 3u, 9u, 11u, 13u}) store->clear_rows("p", by_index(rows[gone]));
  const auto held = store->resolve("p", by_index(rows[12]), std::nullopt, true);
  ::usleep(300'000);
  for (const std::size_t used : {0u, 2u, 4u, 5u, 6u, 7u}) CHECK(read_value(*store, rows[used]) == static_cast<int>(used));
  CHECK_THROWS(store->reserve(3 * mib, 0.0, nullptr));  // five are free
  // 10 was used longest ago of what lies in such a piece: 9 and 11 are free.
  CHECK(store->spill(3 * mib, true) == mib);
  for (const std::size_t stays : {0u, 2u, 4u, 7u, 8u, 12u, 14u, 15u}) {
    CHECK_FALSE(store->resolve("p", by_index(rows[stays]), std::nullopt, true)->block(0).span.spilled());
  }
  store->reserve(3 * mib, 0.0, nullptr)->abandon();
  for (const std::size_t there : {0u, 2u, 4u, 8u, 10u, 12u}) CHECK(read_value(*store, rows[there]) == static_cast<int>(there));
  // The leased one stands in every piece of thirteen.
  CHECK(store->spill(13 * mib, true) == 0);
  require_settled(*store);
}
