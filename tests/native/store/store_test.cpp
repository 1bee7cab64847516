#include "core/store/store.hpp"

#include <atomic>

#include "store/support.hpp"

using namespace tq_test;

TEST_CASE("close waits for calls in flight and refuses later ones") {
  const SessionDirectory session;
  const auto store = session.attach();
  std::atomic<int> refused{0};
  const auto work = [&] {
    try {
      for (;;) put(*store, "p", fresh(1), 1, 4096);
    } catch (const tq::Error& error) {
      CHECK((error.code == tq::ErrorCode::closed || error.code == tq::ErrorCode::storage_full));
      ++refused;
    }
  };
  run_together({work, work, work, [&] {
                  std::this_thread::sleep_for(std::chrono::milliseconds(30));
                  store->close();
                }});
  CHECK(refused == 3);
  CHECK(store->closed());
  const auto again = session.attach();
  CHECK(again->partitions().size() == 1);
}

TEST_CASE("the end of a session reaches every store") {
  const SessionDirectory session;
  const auto one = session.attach();
  const auto two = session.attach();
  std::thread sleeper([&] {
    CHECK(code_of([&] {
            for (;;) two->wait_word(std::nullopt, two->wake_word(std::nullopt), 5.0);
          }) == tq::ErrorCode::session_not_found);
  });
  one->end_session();
  sleeper.join();
  CHECK(two->ended());
  CHECK(code_of([&] { session.attach(); }) == tq::ErrorCode::session_not_found);
}

TEST_CASE("a snapshot that is void eight times is resolved inside the write transaction") {
  if (!tq::pause_points_compiled) return;
  const SessionDirectory session;
  const auto store = session.attach();
  const tq::RowSelector rows = by_key({"a"});
  put(*store, "p", rows, 0);
  const auto wait_at = [](const char* point) {
    while (!tq::is_paused(point)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  tq::arm_pause("get.after_resolve", tq::PauseAction::stop);
  std::shared_ptr<tq::Resolved> answer;
  std::thread reader([&] { answer = store->resolve("p", rows, std::nullopt, true); });
  for (int round = 1; round <= 8; ++round) {
    wait_at("get.after_resolve");
    tq::arm_pause("lease.before_store", tq::PauseAction::stop);
    tq::resume_pause("get.after_resolve");
    wait_at("lease.before_store");
    put(*store, "p", rows, round);
    if (round < 8) tq::arm_pause("get.after_resolve", tq::PauseAction::stop);
    tq::resume_pause("lease.before_store");
  }
  reader.join();
  CHECK(value_of(*answer, 1) == 8);
}

TEST_CASE("moved rows read the same, and rows that changed meanwhile are left alone") {
  const SessionDirectory session;
  const auto store = session.attach();
  std::vector<tq::RowIndex> indexes;
  for (int number = 0; number < 3; ++number) indexes.push_back(put(*store, "p", fresh(1), 5).indexes[0]);
  const auto source = store->resolve("p", by_index(indexes), std::nullopt, true);
  CHECK(source->resolution().blocks.size() == 3);
  put(*store, "p", by_index({indexes[1]}), 8);
  const auto block = filled(*store, 3 * 65536, 5);
  CHECK(store->move(*source, *block, one_field(3, 65536)) == 2);
  source->release();
  CHECK(store->resolve("p", by_index(indexes), std::nullopt, true)->resolution().blocks.size() == 2);
  CHECK(value_of(*store->resolve("p", by_index({indexes[0], indexes[2]}), std::nullopt, true), 2) == 5);
  CHECK(value_of(*store->resolve("p", by_index({indexes[1]}), std::nullopt, true), 1) == 8);
}

TEST_CASE("task locks exclude threads") {
  const SessionDirectory session;
  const auto store = session.attach();
  int inside = 0;  // guarded by the lock under test
  const auto work = [&] {
    for (int number = 0; number < 200; ++number) {
      const auto lock = store->lock_task("p", "actor", 30.0, nullptr);
      ++inside;
    }
  };
  run_together({work, work});
  CHECK(inside == 400);
}
