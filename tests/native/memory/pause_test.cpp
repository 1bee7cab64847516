#include "memory/support.hpp"

namespace tq_test::pause_test {

TEST_CASE("a point that is not armed does nothing") {
  TQ_PAUSE("pause_test.unarmed");
  CHECK_FALSE(tq::is_paused("pause_test.unarmed"));
}

TEST_CASE("fail throws after so many passes, until resumed") {
  tq::arm_pause("pause_test.fail", tq::PauseAction::fail, 2);
  TQ_PAUSE("pause_test.fail");
  TQ_PAUSE("pause_test.fail");
  CHECK(error_of([] { TQ_PAUSE("pause_test.fail"); }).code == tq::ErrorCode::system);
  TQ_PAUSE_NOTHROW("pause_test.fail");
  tq::resume_pause("pause_test.fail");
  TQ_PAUSE("pause_test.fail");
}

TEST_CASE("stop holds a thread until resumed, and it can be seen") {
  tq::arm_pause("pause_test.stop", tq::PauseAction::stop);
  std::atomic<bool> passed{false};
  std::thread thread([&] {
    TQ_PAUSE("pause_test.stop");
    passed = true;
  });
  CHECK(eventually([] { return tq::is_paused("pause_test.stop"); }));
  CHECK_FALSE(passed);
  tq::resume_pause("pause_test.stop");
  thread.join();
  CHECK(passed);
  CHECK_FALSE(tq::is_paused("pause_test.stop"));
}

TEST_CASE("kill ends the process at the point") {
  CHECK(in_child([] {
          tq::arm_pause("pause_test.kill", tq::PauseAction::kill);
          TQ_PAUSE("pause_test.kill");
          return 0;
        }) == -SIGKILL);
}

TEST_CASE("actions have names; others are refused") {
  CHECK(tq::pause_action("kill") == tq::PauseAction::kill);
  CHECK(tq::pause_action("stop") == tq::PauseAction::stop);
  CHECK(tq::pause_action("fail") == tq::PauseAction::fail);
  CHECK(error_of([] { (void)tq::pause_action("explode"); }).code == tq::ErrorCode::invalid);
  CHECK(error_of([] { tq::arm_pause("", tq::PauseAction::fail); }).code == tq::ErrorCode::invalid);
}

TEST_CASE("a child process is armed through the environment") {
  // This executable again, running only the test below.
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::setenv("TRANSFERQUEUE_PAUSE", "pause_test.other=fail,pause_test.environment=kill:1", 1);
    ::execl("/proc/self/exe", "memory_tests", "--test-case=*passes an environment point twice*", "--no-skip", nullptr);
    ::_exit(98);
  }
  CHECK(finish(child) == -SIGKILL);
}

TEST_CASE("passes an environment point twice" * doctest::skip()) {
  TQ_PAUSE("pause_test.environment");
  MESSAGE("passed once");
  TQ_PAUSE("pause_test.environment");
  FAIL("not killed");
}

}  // namespace tq_test::pause_test
