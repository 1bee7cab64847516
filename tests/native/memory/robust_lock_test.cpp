#include <sys/wait.h>

#include "memory/support.hpp"

#include "core/memory/write_gate.hpp"
#include "core/patience.hpp"

namespace tq_test::robust_lock_test {

namespace {

// A child that takes the write gate, says so, and keeps it until it is killed or told to end.
pid_t start_holder(const Session& session, const Signal& taken, const Signal& end) {
  return start_child([&] {
    tq::RobustWriteGate gate(session.control);
    gate.enter();
    taken.send();
    end.wait();
    gate.leave();
    return 0;
  });
}

}  // namespace

TEST_CASE("the write gate excludes, and a timeout names who holds it") {
  Session session;
  const Signal taken;
  const Signal end;
  const pid_t holder = start_holder(session, taken, end);
  REQUIRE(taken.wait());
  tq::RobustWriteGate impatient(session.control, 0.15);
  const tq::Error error = error_of([&] { impatient.enter(); });
  CHECK(error.code == tq::ErrorCode::timeout);
  CHECK_MESSAGE(contains(error.what(), "process " + std::to_string(holder)), error.what());
  CHECK_MESSAGE(contains(error.what(), "session 'native'"), error.what());
  end.send();
  CHECK(finish(holder) == 0);
  impatient.enter();
  impatient.leave();
}

TEST_CASE("the first wait of a call is in slices, what comes later is not, and only the last slice is a refusal") {
  Session session;
  const Signal taken;
  const Signal end;
  tq::RobustWriteGate gate(session.control, 0.1);
  {
    const tq::FirstWait first(0.02, 7.0, false);
    gate.enter();  // free: what is waited for from here on is no first lock
    gate.leave();
    CHECK(tq::FirstWait::current() == nullptr);
  }
  const pid_t holder = start_holder(session, taken, end);
  REQUIRE(taken.wait());
  for (const bool last : {false, true}) {
    const tq::FirstWait first(0.02, 7.0, last);
    const tq::Error error = error_of([&] { gate.enter(); });
    CHECK(error.code == tq::ErrorCode::timeout);
    CHECK(error.nothing_done == !last);
    CHECK_MESSAGE(contains(error.what(), "within 7 s"), error.what());
    const tq::Patience of_clean_up(0.01);
    CHECK(error_of([&] { gate.enter(); }).nothing_done == false);
  }
  CHECK(error_of([&] { gate.enter(); }).nothing_done == false);
  end.send();
  CHECK(finish(holder) == 0);
  gate.enter();
  gate.leave();
}

TEST_CASE("a call's own deadline comes before the gate's, and a stopped holder is said to be stopped") {
  Session session;
  const Signal taken;
  const Signal end;
  const pid_t holder = start_holder(session, taken, end);
  REQUIRE(taken.wait());
  ::kill(holder, SIGSTOP);
  int status = 0;
  REQUIRE(::waitpid(holder, &status, WUNTRACED) == holder);
  // The pid is not written down yet when a process is stopped right behind the locking itself.
  session.control->write_gate().holder_pid.store(0, std::memory_order_relaxed);
  {
    const tq::Patience patience(0.15);
    const tq::Patience same_as_before(std::nullopt);
    tq::RobustWriteGate gate(session.control, 60.0);
    const tq::Error error = error_of([&] { gate.enter(); });
    CHECK(error.code == tq::ErrorCode::timeout);
    CHECK_MESSAGE(contains(error.what(), "process " + std::to_string(holder) + " ("), error.what());
    CHECK_MESSAGE(contains(error.what(), "stopped"), error.what());
    REQUIRE(error.figures.size() == 1);
    CHECK(error.figures[0].second == static_cast<std::uint64_t>(holder));
  }
  CHECK(tq::Patience::left_s(60.0) == 60.0);
  ::kill(holder, SIGCONT);
  end.send();
  CHECK(finish(holder) == 0);
}

TEST_CASE("a holder that is killed is replaced at once, and the lock works on") {
  Session session;
  for (int round = 0; round < 20; ++round) {
    const Signal taken;
    const Signal end;
    const pid_t holder = start_holder(session, taken, end);
    REQUIRE(taken.wait());
    ::kill(holder, SIGKILL);
    REQUIRE(finish(holder) == -SIGKILL);
    bool died = false;
    tq::robust_lock::lock(session.control->write_gate(), 5.0, "gate", nullptr, &died);
    CHECK(died);
    tq::robust_lock::unlock(session.control->write_gate());
    tq::robust_lock::lock(session.control->write_gate(), 5.0, "gate", nullptr, &died);
    CHECK_FALSE(died);
    tq::robust_lock::unlock(session.control->write_gate());
  }
}

TEST_CASE("a waiter whose predecessor dies while it waits goes on") {
  Session session;
  const Signal taken;
  const Signal end;
  const pid_t holder = start_holder(session, taken, end);
  REQUIRE(taken.wait());
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    ::kill(holder, SIGKILL);
  });
  tq::RobustWriteGate gate(session.control, 20.0);
  gate.enter();
  gate.leave();
  killer.join();
  CHECK(finish(holder) == -SIGKILL);
}

TEST_CASE("waiting can be interrupted between slices") {
  Session session;
  const Signal taken;
  const Signal end;
  const pid_t holder = start_holder(session, taken, end);
  REQUIRE(taken.wait());
  tq::RobustWriteGate gate(session.control, 20.0, [] { throw tq::Error(tq::ErrorCode::closed, "Ctrl-C"); });
  CHECK(error_of([&] { gate.enter(); }).code == tq::ErrorCode::closed);
  end.send();
  CHECK(finish(holder) == 0);
}

TEST_CASE("a counter under the gate, from many processes and threads") {
  Session session;
  auto& counter = session.control->handovers();
  const auto count = [&] {
    tq::RobustWriteGate gate(session.control);
    for (int i = 0; i < 200; ++i) {
      gate.enter();
      counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);  // torn without exclusion
      gate.leave();
    }
    return 0;
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) children.push_back(start_child(count));
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back([&] { count(); });
  for (auto& thread : threads) thread.join();
  for (const pid_t child : children) CHECK(finish(child) == 0);
  CHECK(counter.load() == 800);
}

TEST_CASE("a task lock is held by its maker alone; a forked copy is inert") {
  Session session;
  tq::TaskLock lock(session.control, 1, "train", 5.0);
  CHECK(in_child([&] {
          lock.release();  // the copy: must not free the parent's lock
          try {
            tq::TaskLock again(session.control, 1, "train", 0.05);
          } catch (const tq::Error& error) {
            return error.code == tq::ErrorCode::timeout && contains(error.what(), "task 'train'") ? 0 : 1;
          }
          return 2;
        }) == 0);
  lock.release();
  lock.release();
  tq::TaskLock again(session.control, 1, "train", 5.0);
}

}  // namespace tq_test::robust_lock_test
