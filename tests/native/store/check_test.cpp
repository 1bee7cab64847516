// A check beside others that go on, and one that has something to find.
#include <string>

#include "core/memory/block_table.hpp"
#include "store/support.hpp"

namespace {

using namespace tq_test;
using tq::BlockRef;

#ifdef TQ_PAUSE_POINTS
tq::Store* other_process = nullptr;

// Retires what the check has just been told of, each time that it asks.
void replace_all(const char* point) {
  if (std::string("check.listed") != point) return;
  other_process->clear_partition("p");
  put(*other_process, "p", fresh(1), 2);
}

TEST_CASE("blocks retired after the look at the index are no contradiction, however often") {
  const SessionDirectory session;
  const auto store = session.attach();
  const auto other = session.attach();
  other_process = other.get();
  put(*store, "p", fresh(1), 1);
  tq::set_pause_hook(&replace_all);
  store->check();
  tq::set_pause_hook(nullptr);
  CHECK(value_of(*store->resolve("p", by_index({1}), std::nullopt, true), 1) == 2);
}
#endif

TEST_CASE("a block that rows name and the table does not hold is found") {
  const SessionDirectory session;
  const auto store = session.attach();
  const tq::PublishResult made = put(*store, "p", fresh(1), 1);
  store->check();
  const BlockRef block = store->resolve("p", by_index(made.indexes), std::nullopt, true)->resolution().blocks.at(0).ref;
  tq::BlockTable table(session.files().table_fd, "native");
  REQUIRE(table.set_retired(block));
  CHECK(code_of([&] { store->check(); }) == tq::ErrorCode::corrupt);
}

}  // namespace
