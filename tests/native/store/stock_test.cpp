#include "core/store/stock.hpp"

#include "store/support.hpp"

using namespace tq_test;

namespace {

std::shared_ptr<tq::PendingBlock> small(tq::Store& store, std::uint64_t nbytes = 640) {
  return store.reserve(nbytes, 0.0, nullptr, /*ahead=*/true);
}

void publish_small(tq::Store& store, std::uint64_t nbytes = 640) {
  const auto block = small(store, nbytes);
  tq::PublishRequest request;
  request.partition = "p";
  request.rows = fresh(1);
  request.fields = one_field(1, nbytes);
  store.publish(request, block.get());
}

}  // namespace

TEST_CASE("size classes hold what is asked for and at most half as much again") {
  for (std::uint64_t nbytes = 0; nbytes <= tq::Stock::largest_nbytes; ++nbytes) {
    const std::uint64_t size = tq::Stock::class_of(nbytes);
    CHECK_UNARY(size >= nbytes);
    CHECK_UNARY(size % 64 == 0);
    if (nbytes > 64) CHECK_UNARY(2 * size <= 3 * nbytes + 128);
  }
  CHECK(tq::Stock::class_of(512) == 512);
  CHECK(tq::Stock::class_of(700) == 768);
}

TEST_CASE("small puts reserve ahead more and more, counted apart from what is pending, and give it back at the end") {
  const SessionDirectory session(64 * mib, 64 * mib);
  const auto watcher = session.attach();
  watcher->populate(1);
  {
    const auto store = session.attach();
    publish_small(*store);
    CHECK(figure(*watcher, "arena_bytes") == 0);  // who puts once holds nothing
    for (int i = 0; i < 40; ++i) publish_small(*store);
    CHECK(figure(*watcher, "arena_bytes") > 0);
    CHECK(figure(*watcher, "arena_bytes") <= tq::Stock::largest_batch * 768);
    CHECK(figure(*watcher, "pending_bytes") == 0);
    CHECK(figure(*watcher, "used_bytes") >= 41 * 640);
    CHECK(figure(*watcher, "used_bytes") <= 41 * 768);
    CHECK(figure(*watcher, "used_bytes") + figure(*watcher, "arena_bytes") + figure(*watcher, "free_bytes") == 64 * mib);
    CHECK(store->clients().size() == 2);
    for (const auto& client : store->clients()) CHECK(client.pending_bytes == 0);
  }
  CHECK(figure(*watcher, "arena_bytes") == 0);
  watcher->clear_partition("p");
  watcher->reclaim();
  CHECK(figure(*watcher, "free_bytes") == 64 * mib);
}

TEST_CASE("most small puts are one transaction") {
  const SessionDirectory session(64 * mib, 64 * mib);
  const auto store = session.attach();
  const auto holds = [&] {
    std::uint64_t count = 0;
    for (const auto& [nanoseconds, n] : store->write_lock_holds()) count += n;
    return count;
  };
  for (int i = 0; i < 64; ++i) publish_small(*store);
  const std::uint64_t before = holds();
  for (int i = 0; i < 64; ++i) publish_small(*store);
  CHECK(holds() - before <= 64 + 64 / tq::Stock::largest_batch + 1);
}

TEST_CASE("blocks reserved ahead and given up, by hand or by dropping them, come back") {
  const SessionDirectory session(64 * mib, 64 * mib);
  const auto store = session.attach();
  for (int i = 0; i < 20; ++i) {
    const auto block = small(*store);
    if (i % 2 == 0) block->abandon();
  }
  publish_small(*store);  // gives back what was dropped
  CHECK(figure(*store, "pending_bytes") == 0);
  CHECK(figure(*store, "arena_bytes") <= tq::Stock::largest_batch * 768);
}

TEST_CASE("a store that runs full is filled to the end: what was reserved ahead is used before anybody is refused") {
  const SessionDirectory session(16 * mib, 16 * mib);
  const auto store = session.attach();
  for (int i = 0; i < 100; ++i) publish_small(*store, 64);
  CHECK(figure(*store, "arena_bytes") > 0);
  std::vector<std::shared_ptr<tq::PendingBlock>> held;
  for (const std::uint64_t nbytes : {mib, mib / 16, std::uint64_t{4096}, std::uint64_t{64}}) {
    const auto fits = [&] {
      try {
        held.push_back(store->reserve(nbytes, 0.0, nullptr));
        return true;
      } catch (const tq::Error&) {
        return false;
      }
    };
    while (fits()) {
    }
  }
  CHECK(figure(*store, "arena_bytes") == 0);
  CHECK(figure(*store, "free_bytes") == 0);
}
