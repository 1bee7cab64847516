#include "core/store/pending_block.hpp"

#include "store/support.hpp"

using namespace tq_test;

TEST_CASE("an extent goes back once, whoever lets go of it") {
  const SessionDirectory session;
  const auto store = session.attach();
  SUBCASE("abandoned") {
    const auto block = store->reserve(mib, 0.0, nullptr);
    CHECK(figure(*store, "pending_bytes") == mib);
    block->abandon();
    block->abandon();
    CHECK(code_of([&] { block->copy_in({}); }) == tq::ErrorCode::invalid);
  }
  SUBCASE("dropped") { store->reserve(mib, 0.0, nullptr).reset(); }
  SUBCASE("dropped with a tensor alive") {
    auto block = store->reserve(mib, 0.0, nullptr);
    block->map_for_producer();
    auto tensor = block->producer_tensor(0, mib);
    block.reset();
    CHECK(figure(*store, "pending_bytes") == mib);
    std::memset(tensor.get(), 1, mib);
    tensor.reset();
  }
  CHECK(figure(*store, "pending_bytes") == 0);
  CHECK(figure(*store, "free_bytes") == figure(*store, "total_bytes"));
}

TEST_CASE("a failed publication leaves the block pending and its word free; a second one may succeed") {
  const SessionDirectory session;
  const auto store = session.attach();
  const auto block = filled(*store, 65536, 5);
  tq::PublishRequest request;
  request.partition = "p";
  request.rows = by_index({12345});
  request.fields = one_field(1, 65536);
  CHECK(code_of([&] { store->publish(request, block.get()); }) == tq::ErrorCode::stale_rows);
  CHECK(figure(*store, "pending_bytes") == 65536);
  request.rows = fresh(1);
  const auto indexes = store->publish(request, block.get()).indexes;
  CHECK(value_of(*store->resolve("p", by_index(indexes), std::nullopt, true), 1) == 5);
  CHECK(code_of([&] { store->publish(request, block.get()); }) == tq::ErrorCode::invalid);
  CHECK(code_of([&] { block->abandon(); }) == tq::ErrorCode::invalid);
}

TEST_CASE("what a producer writes after the commit is its own") {
  const SessionDirectory session;
  const auto store = session.attach();
  const auto block = store->reserve(65536, 0.0, nullptr);
  block->map_for_producer();
  const auto tensor = block->producer_tensor(0, 65536);
  std::memset(tensor.get(), 3, 65536);
  tq::PublishRequest request;
  request.partition = "p";
  request.rows = fresh(1);
  request.fields = one_field(1, 65536);
  const auto indexes = store->publish(request, block.get()).indexes;
  std::memset(tensor.get(), 4, 65536);
  CHECK(value_of(*store->resolve("p", by_index(indexes), std::nullopt, true), 1) == 3);
  CHECK(tensor.get()[100] == std::byte{4});
}

TEST_CASE("blocks and answers outlive their store") {
  const SessionDirectory session;
  auto store = session.attach();
  const auto pending = filled(*store, 65536, 1);
  const auto indexes = put(*store, "p", fresh(2), 7).indexes;
  const auto resolved = store->resolve("p", by_index(indexes), std::nullopt, true);
  store->close();
  CHECK(code_of([&] { store->partitions(); }) == tq::ErrorCode::closed);
  store.reset();
  CHECK(value_of(*resolved, 2) == 7);
  const auto view = resolved->view(0, 0, 2 * 65536, false);
  resolved->release();
  CHECK(static_cast<std::byte*>(view.get())[65536] == std::byte{7});
}
