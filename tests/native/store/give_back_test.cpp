#include "core/store/give_back.hpp"

#include <atomic>

#include "store/support.hpp"

using namespace tq_test;

TEST_CASE("a cleared block is freed in the same call unless somebody reads it") {
  const SessionDirectory session;
  const auto store = session.attach();
  const auto indexes = put(*store, "p", fresh(4), 1).indexes;
  auto resolved = store->resolve("p", by_index(indexes), std::nullopt, true);
  CHECK(store->clear_rows("p", by_index(indexes)) == 4);
  CHECK(figure(*store, "retired_bytes") == 4 * 65536);
  CHECK(store->reclaim() == 0);
  const auto view = resolved->view(0, 0, 65536, false);
  resolved.reset();
  CHECK(store->reclaim() == 0);
  CHECK(static_cast<std::byte*>(view.get())[5] == std::byte{1});
  const_cast<std::shared_ptr<void>&>(view).reset();
  CHECK(store->reclaim() == 4 * 65536);
  CHECK(figure(*store, "free_bytes") == figure(*store, "total_bytes"));
}

TEST_CASE("two stores of one session see each other's leases") {
  const SessionDirectory session;
  const auto one = session.attach();
  const auto two = session.attach();
  const auto indexes = put(*one, "p", fresh(1), 1).indexes;
  const auto resolved = two->resolve("p", by_index(indexes), std::nullopt, true);
  one->clear_partition("p");
  CHECK(one->reclaim() == 0);
  CHECK(value_of(*resolved, 1) == 1);
  resolved->release();
  CHECK(one->reclaim() == 65536);
}

TEST_CASE("readers, writers and clears at once: every answer is one version, nothing is lost") {
  const SessionDirectory session;
  const auto store = session.attach();
  const tq::RowSelector rows = by_key({"a", "b", "c", "d"});
  put(*store, "p", rows, 0);
  std::atomic<bool> done{false};
  std::atomic<int> torn{0};
  std::atomic<int> answers{0};
  const auto read = [&] {
    while (!done) {
      const auto resolved = store->resolve("p", rows, std::nullopt, true);
      if (value_of(*resolved, 4) < 0) ++torn;
      const auto view = resolved->view(0, 0, 4096, false);
      resolved->release();
      *static_cast<std::byte*>(view.get()) = std::byte{255};  // a private page
      ++answers;
    }
  };
  const auto churn = [&] {
    while (!done) {
      const auto indexes = put(*store, "q", fresh(3), 9).indexes;
      store->clear_rows("q", by_index(indexes));
    }
  };
  const auto write = [&] {
    for (int number = 1; number < 150; ++number) put(*store, "p", rows, number % 200);
    done = true;
  };
  run_together({read, read, churn, write});
  CHECK(torn == 0);
  CHECK(answers > 0);
  store->clear_partition("p");
  store->clear_partition("q");
  store->reclaim();
  CHECK(figure(*store, "free_bytes") == figure(*store, "total_bytes"));
  CHECK(figure(*store, "leased_bytes") == 0);
}

TEST_CASE("allocations dropped on other threads while calls go on") {
  const SessionDirectory session;
  const auto store = session.attach();
  const auto produce = [&] {
    for (int number = 0; number < 60; ++number) {
      auto block = store->reserve(65536, 10.0, nullptr);
      block->map_for_producer();
      auto tensor = block->producer_tensor(0, 65536);
      std::thread dropper([tensor = std::move(tensor)]() mutable {
        std::memset(tensor.get(), 1, 65536);
        tensor.reset();
      });
      if (number % 2 == 0) block->abandon();
      block.reset();
      store->partitions();
      dropper.join();
    }
  };
  run_together({produce, produce});
  CHECK(figure(*store, "pending_bytes") == 0);
}
