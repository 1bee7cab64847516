#include "memory/support.hpp"

#include "core/memory/wake.hpp"

namespace tq_test::wake_test {

TEST_CASE("a wait ends at once when the word differs, and after its time when it does not") {
  Session session;
  auto& word = session.control->session_word();
  const std::uint32_t seen = tq::read_word(word);
  CHECK_FALSE(tq::wait_word(word, seen, 0));
  CHECK_FALSE(tq::wait_word(word, seen, -1));
  const auto begin = std::chrono::steady_clock::now();
  CHECK_FALSE(tq::wait_word(word, seen, 0.05));
  CHECK(std::chrono::steady_clock::now() - begin >= std::chrono::milliseconds(49));
  tq::bump_word(word);
  CHECK(tq::wait_word(word, seen, 20));
}

TEST_CASE("a waiter in another process is woken") {
  Session session;
  auto& word = session.control->partition_word(3);
  const std::uint32_t seen = tq::read_word(word);
  const pid_t child = start_child([&] { return tq::wait_word(word, seen, 20) ? 0 : 1; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  tq::bump_word(word);
  CHECK(finish(child) == 0);
}

TEST_CASE("no wake is lost between two processes that take turns") {
  Session session;
  auto& mine = session.control->partition_word(1);
  auto& theirs = session.control->partition_word(2);
  constexpr std::uint32_t rounds = 2'000;
  const pid_t child = start_child([&] {
    for (std::uint32_t i = 0; i < rounds; ++i) {
      while (tq::read_word(theirs) == i) {
        if (!tq::wait_word(theirs, i, 20)) return 1;  // a lost wake would sleep it out
      }
      tq::bump_word(mine);
    }
    return 0;
  });
  for (std::uint32_t i = 0; i < rounds; ++i) {
    tq::bump_word(theirs);
    while (tq::read_word(mine) == i) REQUIRE(tq::wait_word(mine, i, 20));
  }
  CHECK(finish(child) == 0);
}

TEST_CASE("a signal ends a wait early, so that the caller can look at it") {
  Session session;
  auto& word = session.control->session_word();
  struct sigaction action {};
  struct sigaction old {};
  action.sa_handler = [](int) {};
  REQUIRE(::sigaction(SIGUSR1, &action, &old) == 0);
  const pid_t waiter = start_child([&] { return tq::wait_word(word, tq::read_word(word), 20) ? 1 : 0; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  int status = 0;
  while (::waitpid(waiter, &status, WNOHANG) == 0) {  // again, in case the first one came before the wait
    ::kill(waiter, SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::sigaction(SIGUSR1, &old, nullptr);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace tq_test::wake_test
