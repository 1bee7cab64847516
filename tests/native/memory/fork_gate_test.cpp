// fork() waits for whoever is inside, and everybody else for fork().
#include "memory/support.hpp"

#include "core/memory/copy.hpp"
#include "core/memory/fork_gate.hpp"
#include "core/memory/lease.hpp"
#include "core/memory/private_mapping.hpp"
#include "core/memory/retire.hpp"

namespace tq_test::fork_gate_test {

using tq::BlockRef;
using tq::Span;

namespace {

constexpr BlockRef block = BlockRef::make(1, 3);
constexpr Span span{1u << 20, 128u << 10};

std::shared_ptr<tq::PrivateMapping> view_of(const Session& session) {
  auto held = tq::lease_blocks(*session.table, session.leases, std::vector{block});
  REQUIRE(held.has_value());
  return tq::PrivateMapping::map(session.payload, span, held->at(0));
}

std::vector<BlockRef> retire(Session& session) {
  return tq::unleased_of_retired(*session.table, *session.clients, std::vector{block});
}

}  // namespace

TEST_CASE("fork waits for a deleter in the middle of a drop") {
  for (const char* point : {"view.before_unmap", "view.unmapped", "lease.before_release"}) {
    CAPTURE(point);
    Session session;
    session.make_block(block, span, 42);
    auto view = view_of(session);
    auto other = view_of(session);
    tq::arm_pause(point, tq::PauseAction::stop);
    std::thread dropper([&] { view.reset(); });
    REQUIRE(eventually([&] { return tq::is_paused(point); }));
    std::atomic<bool> resumed{false};
    std::thread resumer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      resumed = true;
      tq::resume_pause(point);
    });
    // The child sees whole objects: the dropped view's claim is gone with it, the other one's is there.
    const int code = in_child([&] {
      if (!resumed) return 1;
      if (session.leases->held() != 1) return 2;
      other.reset();
      return session.leases->held() == 0 ? 0 : 3;
    });
    CHECK(code == 0);
    dropper.join();
    resumer.join();
    CHECK(session.leases->held() == 1);
  }
}

TEST_CASE("fork waits for an operation, and holds new ones off until it is done") {
  Session session;
  session.make_block(block, span, 42);
  tq::arm_pause("lease.before_recheck", tq::PauseAction::stop);
  std::atomic<bool> leased{false};
  std::thread reader([&] {
    const auto held = tq::lease_blocks(*session.table, session.leases, std::vector{block});
    leased = held.has_value();
  });
  REQUIRE(eventually([] { return tq::is_paused("lease.before_recheck"); }));
  std::atomic<bool> resumed{false};
  std::thread resumer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    resumed = true;
    tq::resume_pause("lease.before_recheck");
  });
  // The child does not exist before the operation is over: it inherits a checked claim or none.
  const int code = in_child([&] {
    if (!resumed) return 1;
    if (session.leases->held() > 1) return 2;
    return session.leases->owner() > 0 ? 0 : 3;
  });
  reader.join();
  resumer.join();
  CHECK(code == 0);
  CHECK(leased);
}

TEST_CASE("guards nest, in any order, also on the thread that a fork would wait for") {
  const tq::OperationGuard outer;
  const tq::OperationGuard inner;
  const tq::DeleterGuard deleter;
  const tq::DeleterGuard nested;
  const tq::OperationGuard from_deleter;
}

TEST_CASE("forks, leases, views and copies from many threads at once") {
  Session session;
  session.make_block(block, span, 42);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      std::vector<std::byte> copy(span.nbytes);
      while (!stop) {
        auto view = view_of(session);
        std::memset(view->at(0, 100), 1, 100);
        tq::copy_bytes(copy.data(), session.payload->readable(span), span.nbytes);
        CHECK(all_equal(copy.data(), copy.size(), 42));
      }
    });
  }
  auto kept = view_of(session);
  std::vector<std::thread> forkers;
  for (int i = 0; i < 2; ++i) {
    forkers.emplace_back([&] {
      for (int round = 0; round < 15; ++round) {
        CHECK(in_child([&] {
                if (!all_equal(kept->at(0, span.nbytes), span.nbytes, 42)) return 1;
                const auto view = view_of(session);
                return all_equal(view->at(0, span.nbytes), span.nbytes, 42) ? 0 : 2;
              }) == 0);
      }
    });
  }
  for (auto& forker : forkers) forker.join();
  stop = true;
  for (auto& thread : threads) thread.join();
  kept.reset();
  CHECK(session.leases->held() == 0);
  for (const auto& dead : session.clients->dead()) session.clients->remove(dead.owner);
  CHECK(session.lease_files() == 1);
  CHECK(retire(session) == std::vector{block});
}

}  // namespace tq_test::fork_gate_test
