// fork() with leases, views, deleters and scans in flight.
#include "memory/support.hpp"

#include "core/memory/lease.hpp"
#include "core/memory/lease_clock.hpp"
#include "core/memory/private_mapping.hpp"
#include "core/memory/retire.hpp"

namespace tq_test::fork_test {

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

std::vector<BlockRef> retire(Session& session) { return tq::unleased_of_retired(*session.table, *session.clients, std::vector{block}); }

// What happens to a block when it is freed: its bytes are somebody else's.
void reuse(Session& session) {
  session.table->set_free(block);
  session.make_block(BlockRef::make(2, 3), span, 99);
}

}  // namespace

TEST_CASE("a child keeps reading a view after the parent dropped it, and its death frees the block") {
  Session session;
  session.make_block(block, span, 42);
  auto view = view_of(session);
  const Signal go;
  const Signal checked;
  const Signal end;
  const tq::OwnerId parent_owner = session.leases->owner();
  const pid_t child = start_child([&] {
    if (session.leases->owner() == parent_owner) return 1;
    go.wait();
    if (!all_equal(view->at(0, span.nbytes), span.nbytes, 42)) return 2;
    checked.send();
    end.wait();
    view.reset();
    return session.leases->held() == 0 ? 0 : 3;
  });
  view.reset();
  CHECK(session.leases->held() == 0);
  CHECK(retire(session).empty());  // the child's claim
  const auto clients = session.clients->clients();
  REQUIRE(clients.size() == 2);
  CHECK(clients[1].alive);
  CHECK(eventually([&] { return session.clients->clients()[1].pid == child; }));
  CHECK(blocks_of(clients[1]) == std::vector{block});
  go.send();
  REQUIRE(checked.wait());
  CHECK(retire(session).empty());
  end.send();
  CHECK(finish(child) == 0);
  CHECK(retire(session) == std::vector{block});
  for (const auto& dead : session.clients->dead()) session.clients->remove(dead.owner);
  CHECK(session.lease_files() == 1);
}

TEST_CASE("a child knows since when its parent held what it inherited") {
  Session session;
  session.make_block(block, span, 42);
  const std::uint32_t entry = session.leases->take(block, tq::lease_clock_ns() - 60'000'000'000);
  const Signal ready;
  const Signal end;
  const pid_t child = start_child([&] {
    ready.send();
    end.wait();
    return 0;
  });
  REQUIRE(ready.wait());
  session.leases->release(entry);
  const auto clients = session.clients->clients();
  REQUIRE(clients.size() == 2);
  CHECK(clients[0].leased.empty());
  REQUIRE(blocks_of(clients[1]) == std::vector{block});
  CHECK(clients[1].leased[0].age_s >= 60);
  end.send();
  CHECK(finish(child) == 0);
}

TEST_CASE("the child is alive for the parent's session although the parent dies first") {
  Session session;
  session.make_block(block, span, 42);
  const Signal grandchild_ready;
  const Signal end;
  const pid_t middle = start_child([&] {
    session.leases = session.new_client();
    auto view = view_of(session);
    start_child([&] {
      session.leases->owner();
      grandchild_ready.send();
      end.wait();
      return all_equal(view->at(0, span.nbytes), span.nbytes, 42) ? 0 : 1;
    });
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  REQUIRE(finish(middle) == -SIGKILL);
  REQUIRE(grandchild_ready.wait());
  CHECK(retire(session).empty());
  CHECK(session.clients->dead().size() == 1);
  end.send();
  CHECK(eventually([&] { return retire(session) == std::vector{block}; }));
}

TEST_CASE("the parent's death is seen although a child lives on: the child does not keep its lock") {
  Session session;
  session.make_block(block, span, 42);
  const Signal ready;
  const Signal end;
  const pid_t middle = start_child([&] {
    session.leases = session.new_client();
    start_child([&] {
      ready.send();
      end.wait();
      return 0;
    });
    ::kill(::getpid(), SIGKILL);
    return 0;
  });
  REQUIRE(finish(middle) == -SIGKILL);
  REQUIRE(ready.wait());
  CHECK(session.clients->dead().size() == 1);
  end.send();
}

TEST_CASE("fork without leases writes no file; the child makes its own when it needs one") {
  Session session;
  session.make_block(block, span, 42);
  const Signal forked;
  const Signal go;
  const pid_t child = start_child([&] {
    forked.send();
    go.wait();
    const auto view = view_of(session);
    return session.clients->clients().size() == 2 && all_equal(view->at(0, 10), 10, 42) ? 0 : 1;
  });
  REQUIRE(forked.wait());
  CHECK(session.lease_files() == 1);
  go.send();
  CHECK(finish(child) == 0);
}

TEST_CASE("a child that only executes another program leaves a file without a lock") {
  Session session;
  session.make_block(block, span, 42);
  auto view = view_of(session);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::execl("/bin/sleep", "sleep", "60", nullptr);
    ::_exit(98);
  }
  CHECK(eventually([&] { return session.clients->dead().size() == 1; }));  // while sleep still runs
  view.reset();
  CHECK(retire(session) == std::vector{block});
  session.clients->remove(session.clients->dead().at(0).owner);
  CHECK(session.lease_files() == 1);
  ::kill(child, SIGKILL);
  CHECK(finish(child) == -SIGKILL);
}

TEST_CASE("children of children, each with its own claims") {
  Session session;
  session.make_block(block, span, 42);
  auto view = view_of(session);
  const int code = in_child([&] {
    return in_child([&] {
      auto second = view_of(session);
      std::memset(second->at(0, 10), 1, 10);
      view.reset();
      if (session.leases->held() != 1 || !retire(session).empty()) return 1;
      return all_equal(session.payload->readable(span), span.nbytes, 42) ? 0 : 2;
    });
  });
  CHECK(code == 0);
  CHECK(retire(session).empty());
  view.reset();
  CHECK(retire(session) == std::vector{block});
}

#if !defined(__SANITIZE_THREAD__)  // it dies ("dup thread") when a forked child starts threads
TEST_CASE("a hand-over during a scan does not hide the claim") {
  // The scanner lists the directory before the child's file exists and reads the parent's entry after its release.
  Session session;
  session.make_block(block, span, 42);
  auto view = view_of(session);
  const Signal listed;
  const Signal go;
  const pid_t scanner = start_child([&] {
    session.leases.reset();  // its own copy of the claims: the scan is about the parent and the other child
    view.reset();
    tq::arm_pause("lease_directory.listed", tq::PauseAction::stop);
    std::vector<BlockRef> freed;
    std::thread scan([&] { freed = retire(session); });
    if (!eventually([] { return tq::is_paused("lease_directory.listed"); })) return 1;
    listed.send();
    go.wait();
    tq::resume_pause("lease_directory.listed");
    scan.join();
    return freed.empty() ? 0 : 2;
  });
  REQUIRE(listed.wait());
  const Signal end;
  const pid_t reader = start_child([&] {
    end.wait();
    return all_equal(view->at(0, span.nbytes), span.nbytes, 42) ? 0 : 1;
  });
  view.reset();  // the parent's entry is 0 now; the claim is in a file that the scanner has not listed
  go.send();
  CHECK(finish(scanner) == 0);
  end.send();
  CHECK(finish(reader) == 0);
}
#endif

TEST_CASE("a hand-over that fails: the child says why, and its views are inaccessible instead of wrong") {
  Session session;
  session.make_block(block, span, 42);
  auto view = view_of(session);
  tq::arm_pause("fork.before_handover", tq::PauseAction::fail);
  SUBCASE("calls") {
    CHECK(in_child([&] {
            const tq::Error error = error_of([&] { session.leases->owner(); });
            if (error.code != tq::ErrorCode::closed || !contains(error.what(), "fork.before_handover")) return 1;
            view.reset();  // harmless
            // A fork of this child is no better off, and harms nothing either.
            return in_child([&] { return session.leases->claims_void() ? 0 : 1; }) == 0 && session.leases->claims_void() ? 0 : 2;
          }) == 0);
  }
  SUBCASE("views") {
    CHECK(in_child([&] {
            ::signal(SIGSEGV, SIG_DFL);
            return all_equal(view->at(0, 10), 10, 42) ? 0 : 1;
          }) == -SIGSEGV);
  }
  SUBCASE("read-only views") {
    auto held = tq::lease_blocks(*session.table, session.leases, std::vector{block});
    const auto bytes = tq::read_only_view(session.payload, span, held->at(0), 0, span.nbytes);
    CHECK(in_child([&] {
            ::signal(SIGSEGV, SIG_DFL);
            return all_equal(bytes.get(), 10, 42) ? 0 : 1;
          }) == -SIGSEGV);
  }
  tq::resume_pause("fork.before_handover");
  // The parent goes on, and so do its later children.
  CHECK(all_equal(view->at(0, span.nbytes), span.nbytes, 42));
  CHECK(in_child([&] { return all_equal(view->at(0, span.nbytes), span.nbytes, 42) ? 0 : 1; }) == 0);
  CHECK(session.leases->held() >= 1);
}

TEST_CASE("a session that is over: inherited views stay readable, calls say so") {
  Session session;
  session.make_block(block, span, 42);
  auto view = view_of(session);
  session.control->end_session();
  std::filesystem::remove_all(session.lease_path);
  CHECK(in_child([&] {
          if (!all_equal(view->at(0, span.nbytes), span.nbytes, 42)) return 1;
          view.reset();
          return error_of([&] { session.leases->owner(); }).code == tq::ErrorCode::session_not_found ? 0 : 2;
        }) == 0);
  CHECK(all_equal(view->at(0, span.nbytes), span.nbytes, 42));
}

TEST_CASE("killed around the hand-over: nothing stays leased") {
  Session session;
  session.make_block(block, span, 42);
  for (const char* point : {"fork.before_handover", "lease_file.locked"}) {
    CHECK(in_child([&] {
            session.leases = session.new_client();
            auto view = view_of(session);
            tq::arm_pause(point, tq::PauseAction::kill);
            return in_child([] { return 0; });
          }) == -SIGKILL);
  }
  for (const auto& dead : session.clients->dead()) session.clients->remove(dead.owner);
  CHECK(session.lease_files() == 1);
  CHECK(retire(session) == std::vector{block});
  reuse(session);
  CHECK(session.table->is_live(BlockRef::make(2, 3)));
}

}  // namespace tq_test::fork_test
