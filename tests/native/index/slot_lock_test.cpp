#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "core/index/check.hpp"
#include "core/index/slot_lock.hpp"
#include "core/index/txn.hpp"
#include "core/patience.hpp"
#include "index/support.hpp"

using namespace tq_test;

namespace {

// A child that has the lock, until it is killed. It says so through the pipe.
pid_t start_holder(const std::string& directory) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const tq::index::SlotLock held(directory);
    [[maybe_unused]] const ssize_t n = ::write(ends[1], "x", 1);
    for (;;) ::pause();
  }
  char said = 0;
  REQUIRE(::read(ends[0], &said, 1) == 1);
  ::close(ends[0]);
  ::close(ends[1]);
  return child;
}

void kill_and_wait(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace

TEST_CASE("the lock of the reader table: a timeout names who holds it, who had a slot reads on, and a dead holder is replaced") {
  Session session;
  put(*session.index, "p", fresh(3), {"x"});  // this thread has a slot from here on
  const pid_t holder = start_holder(session.directory.path());
  {
    const tq::Patience patience(0.15);
    const tq::Error error = error_of([&] { session.index->check_readers(); });
    CHECK(error.code == tq::ErrorCode::timeout);
    CHECK_MESSAGE(std::string(error.what()).find("process " + std::to_string(holder)) != std::string::npos, error.what());
    REQUIRE(error.figures.size() == 1);
    CHECK(error.figures[0].second == static_cast<std::uint64_t>(holder));
  }
  CHECK(session.index->stats().rows == 3);
  put(*session.index, "p", fresh(1), {"x"});
  kill_and_wait(holder);
  session.index->check_readers();
}

TEST_CASE("a child of a fork does not hold its parent's lock of the reader table") {
  TempDirectory directory;
  pid_t child = 0;
  {
    const tq::index::SlotLock held(directory.path());
    child = ::fork();
    if (child == 0) {
      for (;;) ::pause();
    }
  }
  const tq::Patience patience(0.15);
  const tq::index::SlotLock again(directory.path());
  kill_and_wait(child);
}

TEST_CASE("slots of dead children, which fill the reader table, go to the next child that opens the index") {
  // 8,000 forks that nobody cleaned up behind leave the table like this; here one child takes all that is left of it.
  Session session;
  put(*session.index, "p", fresh(3), {"x"});
  const auto in_child = [&](auto&& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      int code = 1;
      try {
        session.index->reopen_in_child();
        code = work();
      } catch (const std::exception&) {
        code = 2;
      }
      ::_exit(code);  // nothing is closed: the slots stay taken
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
  };
  const int taken = in_child([&] {
    const auto env = tq::index::Env::open(session.directory.path());
    std::vector<std::unique_ptr<tq::index::ReadTxn>> held;
    try {
      for (;;) held.push_back(std::make_unique<tq::index::ReadTxn>(*env));
    } catch (const tq::Error& error) {
      for (auto& txn : held) static_cast<void>(txn.release());  // as of a killed process
      return held.size() > tq::index::Env::max_readers - 8 && error.code == tq::ErrorCode::system ? 0 : 3;
    }
  });
  CHECK(taken == 0);
  CHECK(in_child([&] { return session.index->list_rows("p").indexes.size() == 3 ? 0 : 3; }) == 0);
  CHECK(session.index->stats().rows == 3);
}

TEST_CASE("threads take the lock of the reader table in turn") {
  TempDirectory directory;
  int inside = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        const tq::index::SlotLock held(directory.path());
        CHECK(++inside == 1);
        --inside;
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST_CASE("a reader that stands still fills the index; the refusal names it, at once the second time, and all goes on after it") {
  Session session(2u << 20);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  put(*session.index, "p", fresh(1, {"k"}), {"x"});
  CHECK_FALSE(session.index->oldest_reader().has_value());
  const pid_t child = ::fork();
  if (child == 0) {
    session.index->reopen_in_child();
    const std::shared_ptr<tq::index::Env> env = tq::index::Env::open(session.directory.path());
    const tq::index::ReadTxn txn(*env);
    [[maybe_unused]] const ssize_t n = ::write(ends[1], "x", 1);
    for (;;) ::pause();
  }
  char said = 0;
  REQUIRE(::read(ends[0], &said, 1) == 1);
  const auto fill = [&] {
    for (int i = 0; i < 20'000; ++i) put(*session.index, "p", by_key({"k"}), {"x"});
  };
  for (int round = 0; round < 2; ++round) {
    const tq::Patience patience(0.2);
    const tq::Error error = error_of(fill);
    CHECK(error.code == tq::ErrorCode::index_full);
    CHECK_MESSAGE(std::string(error.what()).find("process " + std::to_string(child)) != std::string::npos, error.what());
  }
  const auto reader = session.index->oldest_reader();
  REQUIRE(reader.has_value());
  CHECK(reader->pid == child);
  CHECK(reader->commits > 0);
  kill_and_wait(child);
  put(*session.index, "p", by_key({"k"}), {"x"});
  CHECK_FALSE(session.index->oldest_reader().has_value());
  check_whole_index(session.directory.path());
  ::close(ends[0]);
  ::close(ends[1]);
}
