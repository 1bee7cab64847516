#include "memory/support.hpp"

namespace tq_test::block_table_test {

using tq::BlockRef;
using tq::BlockState;

TEST_CASE("a block goes free, live, retired, free, and another generation is none of its business") {
  Session session;
  tq::BlockTable& table = *session.table;
  const BlockRef block = BlockRef::make(5, 17);
  CHECK(table.state(block) == BlockState::free);
  CHECK_FALSE(table.set_retired(block));
  table.ensure(block);
  table.set_live(block);
  CHECK(table.is_live(block));
  CHECK(table.set_retired(block));
  CHECK(table.set_retired(block));  // again, by whoever reclaims
  CHECK_FALSE(table.is_live(block));
  CHECK(table.state(block) == BlockState::retired);
  CHECK(table.set_free(block));
  CHECK_FALSE(table.set_free(block));

  const BlockRef next = BlockRef::make(9, 17);
  table.set_live(next);
  // A process that was stopped since generation 5 wakes up now.
  CHECK_FALSE(table.set_retired(block));
  CHECK_FALSE(table.set_free(block));
  CHECK_FALSE(table.is_live(block));
  CHECK(table.is_live(next));
  CHECK(table.set_free(next));  // an abandoned reservation: live, never published
}

TEST_CASE("the table is backed as slots come into use, and slots beyond are simply not live") {
  Session session;
  const BlockRef far = BlockRef::make(1, 100'000);
  CHECK_FALSE(session.table->is_live(far));
  CHECK_FALSE(session.table->set_retired(far));
  CHECK(error_of([&] { session.table->set_live(far); }).code == tq::ErrorCode::invalid);
  session.table->ensure(far);
  session.table->set_live(far);
  CHECK(session.table->is_live(far));
  // Another process sees it through its own mapping.
  CHECK(tq::BlockTable(session.table_fd.get(), session.name).is_live(far));
  const tq::Error error = error_of([&] { session.table->ensure(BlockRef::make(1, tq::layout::max_slots)); });
  CHECK(error.code == tq::ErrorCode::index_full);
}

TEST_CASE("many threads extend the table at once") {
  Session session;
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&session, i] {
      for (std::uint32_t slot = i; slot < 200'000; slot += 1'001) {
        session.table->ensure(BlockRef::make(1, slot));
        session.table->set_live(BlockRef::make(1, slot));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (std::uint32_t i = 0; i < 4; ++i) {
    for (std::uint32_t slot = i; slot < 200'000; slot += 1'001) CHECK(session.table->is_live(BlockRef::make(1, slot)));
  }
}

}  // namespace tq_test::block_table_test
