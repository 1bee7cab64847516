// Several processes on one index: killed writers, concurrent writers, children of a fork.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>
#include <thread>

#include "core/pause.hpp"
#include "index/support.hpp"

using namespace tq_test;

namespace {

// Runs `body` in a forked child that has reopened the index; exit status 1 when it throws.
template <class Body>
pid_t in_child(Session& session, Body&& body) {
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid > 0) return pid;
  int status = 0;
  try {
    session.index->reopen_in_child();
    body(*session.index);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
    status = 1;
  }
  _exit(status);  // no destructor of the parent's objects
}

int wait_for(pid_t pid) {
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return status;
}
bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
bool exited_well(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

}  // namespace

TEST_CASE("a writer killed before its commit changed nothing, after it everything") {
  Session session;
  Index& index = *session.index;
  put(index, "p", by_key(numbered("old ", 300)), {"x"});
  put(index, "q", fresh(10), {"x"});
  const auto killed_at = [&](const char* point, auto&& body) {
    CHECK(was_killed(wait_for(in_child(session, [&](Index& in) {
      tq::arm_pause(point, tq::PauseAction::kill);
      body(in);
    }))));
    check_whole_index(session.directory.path());
  };
  const auto put_new = [](Index& in) { put(in, "p", by_key(numbered("new ", 100)), {"x", "y"}); };

  killed_at("index.reserve.before_commit", put_new);
  CHECK(index.stats().pending_bytes == 0);
  killed_at("index.publish.before_commit", put_new);
  CHECK(index.stats().pending_bytes > 0);
  CHECK(index.list_rows("p").indexes == range(0, 300));
  CHECK(index.abandon_owner(owner).size() == 1);
  killed_at("index.publish.after_commit", put_new);
  CHECK(index.stats().pending_bytes == 0);
  CHECK(index.list_rows("p").indexes.size() == 400);
  bool found = false;
  CHECK(index.find_keys("p", {"new 99"}, &found)[0] == index.list_rows("p").indexes.back());

  killed_at("index.clear.between_batches", [](Index& in) { in.clear_partition("p"); });
  CHECK(index.partitions() == std::vector<std::string>{"q"});
  index.finish_clears();
  CHECK(index.retired().size() == 2);
  killed_at("index.free.before_commit", [](Index& in) { in.free_retired(in.retired()); });
  CHECK(index.retired().size() == 2);
  CHECK(index.free_retired(index.retired()) > 0);
  CHECK(index.stats().retired_bytes == 0);
  put(index, "p", fresh(1), {"x"});  // the lock of the dead was taken over
  check_whole_index(session.directory.path());
}

TEST_CASE("writers killed at any moment leave a whole index") {
  Session session;
  std::mt19937_64 random(5);
  for (int round = 0; round < 40; ++round) {
    const std::uint64_t seed = random();
    const pid_t child = in_child(session, [&](Index& index) {
      std::mt19937_64 own(seed);
      for (;;) {
        const std::string name = "p" + std::to_string(own() % 3);
        switch (own() % 6) {
          case 0:
            put(index, name, fresh(static_cast<std::int64_t>(own() % 60)), {"a", "b"});
            break;
          case 1:
            put(index, name, by_key(numbered("k", 50, static_cast<std::int64_t>(own() % 500))), {"c"});
            break;
          case 2:
            if (const auto rows = index.list_rows(name).indexes; !rows.empty()) {
              put(index, name, by_index({rows[own() % rows.size()]}), {"b"});
            }
            break;
          case 3:
            index.clear_rows(name, by_index(index.list_rows(name).indexes));
            break;
          case 4:
            if (own() % 4 == 0) index.clear_partition(name);
            break;
          default:
            index.free_retired(index.retired());
        }
      }
    });
    usleep(static_cast<useconds_t>(500 + random() % 8'000));
    kill(child, SIGKILL);
    CHECK(was_killed(wait_for(child)));
    check_whole_index(session.directory.path());
    session.index->abandon_owner(owner);
    session.index->finish_clears();
    check_whole_index(session.directory.path());
  }
  session.index->check_readers();
  for (const std::string& name : session.index->partitions()) session.index->clear_partition(name);
  session.index->free_retired(session.index->retired());
  CHECK(session.index->stats().largest_free == session.index->stats().reserved_bytes);
}

TEST_CASE("processes that put at the same time: every row once, no space lost, readers see whole puts") {
  Session session;
  constexpr int n_writers = 3;
  constexpr int n_puts = 150;
  std::vector<pid_t> writers;
  for (int w = 0; w < n_writers; ++w) {
    writers.push_back(in_child(session, [&](Index& index) {
      for (int i = 0; i < n_puts; ++i) put(index, "p", fresh(4), {"a", "b"});
    }));
  }
  std::size_t seen = 0;
  while (seen < n_writers * n_puts * 4) {
    const auto rows = session.index->list_rows("p").indexes;
    CHECK(rows.size() % 4 == 0);
    CHECK(rows.size() >= seen);
    seen = rows.size();
    const Resolution answer = session.index->resolve("p", by_index(rows), std::vector<std::string>{"a", "b"});
    CHECK(answer.gone.empty());
    for (const auto& pieces : answer.piece_lists) {
      for (const tq::Piece& piece : pieces) CHECK(piece.count == 4);
    }
    if (rows.empty()) std::this_thread::yield();
  }
  for (const pid_t pid : writers) CHECK(exited_well(wait_for(pid)));
  CHECK(session.index->list_rows("p").indexes == range(0, n_writers * n_puts * 4));
  check_whole_index(session.directory.path());
}

TEST_CASE("threads that share an index: readers, writers, clears") {
  Session session;
  Index& index = *session.index;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = "p" + std::to_string(t);
      for (int i = 0; i < 60; ++i) {
        const PublishResult made = put(index, name, by_key(numbered("k" + std::to_string(i) + " ", 8)), {"a"});
        put(index, name, by_index({made.indexes[3]}), {"a", "b"});
        if (i % 3 == 0) index.clear_rows(name, by_index({made.indexes[0], made.indexes[7]}));
        if (i % 10 == 0) index.free_retired(index.retired());
      }
    });
  }
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        for (const char* name : {"p0", "p1"}) {
          const auto rows = index.list_rows(name).indexes;
          index.resolve(name, by_index(rows), std::nullopt);
        }
      }
    });
  }
  threads[0].join();
  threads[1].join();
  stop = true;
  threads[2].join();
  threads[3].join();
  CHECK(index.list_rows("p0").indexes.size() == 60 * 8 - 20 * 2);
  check_whole_index(session.directory.path());
}

TEST_CASE("a child of a fork reads and writes, and the parent's readers are left alone") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(10), {"a"});
  for (int i = 0; i < 4; ++i) index.list_rows("p");  // read transactions stand in the parent's pool
  const pid_t child = in_child(session, [&](Index& in) {
    if (in.list_rows("p").indexes.size() != 10) throw std::runtime_error("the child does not see the parent's rows");
    put(in, "p", fresh(5), {"a"});
    const pid_t grandchild = in_child(session, [&](Index& below) { put(below, "p", fresh(5), {"a"}); });
    if (!exited_well(wait_for(grandchild))) throw std::runtime_error("the grandchild failed");
    put(in, "p", fresh(5), {"a"});
  });
  CHECK(exited_well(wait_for(child)));
  CHECK(index.list_rows("p").indexes == range(0, 25));
  CHECK(index.check_readers() >= 0);
  put(index, "p", fresh(5), {"a"});
  CHECK(index.list_rows("p").indexes == range(0, 30));
  check_whole_index(session.directory.path());
}

TEST_CASE("a child that was not reopened is, at its first call") {
  Session session;
  put(*session.index, "p", fresh(10), {"a"});
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    put(*session.index, "p", fresh(1), {"a"});
    _exit(session.index->list_rows("p").indexes.size() == 11 ? 0 : 1);
  }
  CHECK(exited_well(wait_for(pid)));
  CHECK(session.index->list_rows("p").indexes.size() == 11);
}

TEST_CASE("an index whose files are removed goes on where it is open, and is not found elsewhere") {
  Session session;
  Index& index = *session.index;
  put(index, "p", fresh(10), {"a"});
  std::filesystem::remove_all(session.directory.path());
  put(index, "p", fresh(10), {"a"});
  CHECK(index.list_rows("p").indexes.size() == 20);
  CHECK(error_of([&] { Index other(session.directory.path(), session.gate, session.judge); }).code == tq::ErrorCode::session_not_found);
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    int refused = 0;
    for (int i = 0; i < 2; ++i) {
      try {
        index.list_rows("p");
      } catch (const tq::Error& error) {
        refused += error.code == tq::ErrorCode::session_not_found ? 1 : 0;
      }
    }
    _exit(refused == 2 ? 0 : 1);
  }
  CHECK(exited_well(wait_for(pid)));
  CHECK(index.list_rows("p").indexes.size() == 20);
}

TEST_CASE("a child that attaches anew shares the environment that it inherited") {
  Session session;
  put(*session.index, "p", fresh(10), {"a"});
  const pid_t pid = fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    Index anew(session.directory.path(), session.gate, session.judge);
    put(anew, "p", fresh(1), {"a"});
    session.index.reset();  // the inherited handle goes; were it an environment of its own, the locks would go with it
    put(anew, "p", fresh(1), {"a"});
    _exit(anew.list_rows("p").indexes.size() == 12 ? 0 : 1);
  }
  CHECK(exited_well(wait_for(pid)));
  CHECK(session.index->list_rows("p").indexes.size() == 12);
  check_whole_index(session.directory.path());
}
