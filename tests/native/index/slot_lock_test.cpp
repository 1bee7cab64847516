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
